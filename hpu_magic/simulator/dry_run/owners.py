"""Finds out what reserved device memory is used for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer


class Owners:
    """The kind of tensor in each reservation: parameters, gradients, optimizer state or buffers.

    Parameters
    ----------
    reservation_of
        Returns the number of the reservation that holds a tensor's memory, or 0.
    """

    def __init__(self, reservation_of: Callable[[torch.Tensor], int]) -> None:
        self._reservation_of = reservation_of
        self._kinds: dict[int, str] = {}

    def of(self, reservation: int) -> str | None:
        """Return the kind of tensor in a reservation, or None if it is unknown."""
        return self._kinds.get(reservation)

    def find(self, optimizers: Iterable[Optimizer] = ()) -> None:
        """Search the tensors of all modules and optimizers that exist now."""
        found = list(optimizers)
        for each in gc.get_objects():
            # Some objects have a `__class__` that runs code, so isinstance() is not used.
            if issubclass(type(each), nn.Module):
                self._add("parameters", each.__dict__.get("_parameters", {}).values())
                self._add("buffers", each.__dict__.get("_buffers", {}).values())
            elif issubclass(type(each), Optimizer):
                found.append(each)
        for optimizer in found:
            for group in optimizer.param_groups:
                self._add("parameters", group["params"])
            for state in optimizer.state.values():
                values = state.values() if isinstance(state, dict) else [state]
                self._add("optimizer state", values)

    def _add(self, kind: str, tensors: Iterable[Any]) -> None:
        for each in tensors:
            if not isinstance(each, torch.Tensor):
                continue
            self._note(kind, each)
            if kind == "parameters" and each.is_leaf and each.grad is not None:
                self._note("gradients", each.grad)

    def _note(self, kind: str, tensor: torch.Tensor) -> None:
        for each in _plain(tensor):
            if number := self._reservation_of(each):
                self._kinds[number] = kind


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor, or the local tensor of a DTensor, if it is on the device."""
    local = getattr(tensor, "_local_tensor", None)
    each = local if isinstance(local, torch.Tensor) else tensor
    if each.device.type == "hpu":
        yield each
