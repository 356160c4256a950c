"""Features that the installed PyTorch release does not support on the device."""

from __future__ import annotations

import torch

FUSED_OPTIMIZERS = "fused optimizers"
GENERATORS = "torch.Generator('hpu')"
PINNING_LOADERS = "DataLoader(pin_memory=True) without pin_memory_device='hpu'"
COMPILED_AUTOGRAD = "compiled autograd"
PROFILED_CARDS = "torch.profiler.ProfilerActivity.HPU"
OPTIONAL_LISTS = "compiled operators that write to optional lists (torch.ops.hpu.optimizer_adamw)"
STRIDED_NESTED_TENSORS = "strided nested tensors and attention of jagged nested tensors"


def missing() -> list[str]:
    """Return the features that this PyTorch does not support on ``hpu``."""
    checks = {
        FUSED_OPTIMIZERS: _has_fused_optimizers,
        GENERATORS: _has_generators,
        PINNING_LOADERS: _has_pinning_loaders,
        COMPILED_AUTOGRAD: _has_compiled_autograd,
        PROFILED_CARDS: _has_profiled_cards,
        OPTIONAL_LISTS: _has_optional_lists,
        STRIDED_NESTED_TENSORS: _has_strided_nested_tensors,
    }
    return [name for name, is_available in checks.items() if not is_available()]


def sentence() -> str:
    """Return a sentence that lists the missing features, or an empty string if there are none."""
    features = missing()
    if not features:
        return ""
    return (
        f"torch {torch.__version__} does not support these features on hpu: {'; '.join(features)}."
    )


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
    # Older DataLoaders only check for CUDA.
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    return "accelerator" in _BaseDataLoaderIter.__init__.__code__.co_names


def _has_compiled_autograd() -> bool:
    # Inside compiled autograd, Dynamo 2.6 traces the backward graph as user code and mixes two fake
    # tensor modes. The problem affects every device and can only be detected by the version number.
    return torch.__version__ >= (2, 7)


def _has_profiled_cards() -> bool:
    return hasattr(torch._C._profiler.ProfilerActivity, "HPU")


def _has_optional_lists() -> bool:
    # The module that lists the types accepted by functionalization is slow to import, so check the
    # version instead.
    return torch.__version__ >= (2, 7)


def _has_strided_nested_tensors() -> bool:
    # PyTorch checks the device of the storage, and creating a storage would acquire a card.
    # Attention on jagged tensors uses strided tensors internally.
    return torch.__version__ >= (2, 8)
