"""Where PyTorch's quantization of exported graphs lives: it left ``torch.ao`` for torchao."""

from __future__ import annotations

import importlib
from types import ModuleType

_PLACES = {
    "observer": ("torchao.quantization.pt2e.observer", "torch.ao.quantization.observer"),
    "quantizer": ("torchao.quantization.pt2e.quantizer", "torch.ao.quantization.quantizer"),
}


def find(part: str) -> ModuleType | None:
    """Return the module with the classes of this part, None where this PyTorch has none."""
    for place in _PLACES[part]:
        try:
            return importlib.import_module(place)
        except ImportError:
            continue
    return None


def need(part: str) -> ModuleType:
    """Return the module with the classes of this part.

    Raises
    ------
    ImportError
        It is not installed.
    """
    module = find(part)
    if module is None:
        raise ImportError(
            "Quantization of exported graphs is no part of this PyTorch: install torchao."
        )
    return module
