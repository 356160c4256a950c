"""What the installed PyTorch cannot do on the device: asked of PyTorch, where it can be."""

from __future__ import annotations

import torch

FUSED_OPTIMIZERS = "fused optimizers"
GENERATORS = "torch.Generator('hpu')"
PINNING_LOADERS = "DataLoader(pin_memory=True) without pin_memory_device='hpu'"
COMPILED_AUTOGRAD = "compiled autograd"
PROFILED_CARDS = "torch.profiler.ProfilerActivity.HPU"
OPTIONAL_LISTS = "compiled operators that write optional lists (torch.ops.hpu.optimizer_adamw)"


def missing() -> list[str]:
    """Names of what this PyTorch lacks for ``hpu``, none on current releases."""
    checks = {
        FUSED_OPTIMIZERS: _has_fused_optimizers,
        GENERATORS: _has_generators,
        PINNING_LOADERS: _has_pinning_loaders,
        COMPILED_AUTOGRAD: _has_compiled_autograd,
        PROFILED_CARDS: _has_profiled_cards,
        OPTIONAL_LISTS: _has_optional_lists,
    }
    return [name for name, is_there in checks.items() if not is_there()]


def sentence() -> str:
    """One sentence about what is missing, empty where nothing is."""
    lacking = missing()
    return f"torch {torch.__version__} lacks on hpu: {'; '.join(lacking)}." if lacking else ""


def _has_fused_optimizers() -> bool:
    from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

    return "hpu" in _get_fused_kernels_supported_devices()


def _has_generators() -> bool:
    try:
        torch.Generator("hpu")
    except RuntimeError:
        return False
    return True


def _has_pinning_loaders() -> bool:
    # The first loaders looked for CUDA alone; those that ask for any accelerator name it.
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return "accelerator" in _BaseDataLoaderIter.__init__.__code__.co_names


def _has_compiled_autograd() -> bool:
    # On every device Dynamo of 2.6 takes the backward's graph for code of the user while compiled
    # autograd traces it, and two fake modes meet; nothing but the release tells.
    return torch.__version__ >= (2, 7)


def _has_profiled_cards() -> bool:
    return hasattr(torch._C._profiler.ProfilerActivity, "HPU")


def _has_optional_lists() -> bool:
    # What functionalization takes stands in a function whose module is slow to import.
    return torch.__version__ >= (2, 7)
