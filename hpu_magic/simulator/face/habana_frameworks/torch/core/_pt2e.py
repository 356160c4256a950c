"""PyTorch's quantization of exported graphs, which moved from ``torch.ao`` to torchao."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = {
    "observer": ("torchao.quantization.pt2e.observer", "torch.ao.quantization.observer"),
    "quantizer": ("torchao.quantization.pt2e.quantizer", "torch.ao.quantization.quantizer"),
}


def find(part: str) -> ModuleType | None:
    """Return the module `part`, or None if it is not installed."""
    for name in _MODULES[part]:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def need(part: str) -> ModuleType:
    """Return the module `part`, or raise ImportError if it is not installed."""
    module = find(part)
    if module is None:
        raise ImportError(
            "This PyTorch release cannot quantize exported graphs on its own; install torchao."
        )
    return module
