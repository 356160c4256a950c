"""Constant parameters and value ranges of quantized tensors, for the vendor's graph compiler.

Simulated graphs read all tensors each time they run, so these settings do not affect results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

_ids = itertools.count()
_marked = 0
_ranges: dict[str, tuple[float, float]] = {}


def _mark_params_as_const(
    model: nn.Module | None = None, only_scales: bool = False, console_prints: bool = False
) -> None:
    """Set ``is_const_tensor = True`` and a consecutive ``const_id`` on a model's tensors.

    `only_scales` selects tensors with "scale" in their names; `console_prints` prints the names.
    """
    global _marked
    for name, tensor in _named_tensors(model, only_scales):
        if not getattr(tensor, "is_const_tensor", False):
            tensor.is_const_tensor = True  # type: ignore[attr-defined]
            tensor.const_id = next(_ids)  # type: ignore[attr-defined]
            _marked += 1
        if console_prints:
            print(f"{name} is constant {tensor.const_id}")  # type: ignore[attr-defined]


def _check_params_as_const(model: nn.Module | None = None, only_scales: bool = False) -> None:
    """Do nothing, because the simulator does not use the marks of constant tensors."""
    for _, tensor in _named_tensors(model, only_scales):
        getattr(tensor, "is_const_tensor", False)


def _get_marked_const_count() -> int:
    return _marked


def _record_quant_param(name: str, min: float, max: float) -> None:
    _ranges[name] = (min, max)


def record_ranges(file: str | None) -> None:
    """Record the value ranges listed in a file; raise ValueError if a line is malformed."""
    if not file:
        return
    for number, line in enumerate(Path(file).read_text().splitlines(), 1):
        words = line.split()
        try:
            name, low, high = words[0], float(words[1]), float(words[2])
        except (IndexError, ValueError):
            raise ValueError(
                f"{file}, line {number}: {line!r} is not a range; write a name, the minimum and "
                "the maximum, separated by spaces."
            ) from None
        _record_quant_param(name, low, high)


def _named_tensors(
    model: nn.Module | None, only_scales: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    if model is None:
        return
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if isinstance(tensor, torch.Tensor) and (not only_scales or "scale" in name):
            yield name, tensor
