"""Checkpoints that load on a machine without a card."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

__all__ = ["HPUCheckpointIOBase"]


def _on_host(value: Any, copies: dict[tuple[Any, ...], torch.Tensor]) -> Any:
    """Return `value` with the tensors inside dicts, lists and tuples copied to the host.

    Parameters
    ----------
    value : object
        What is to be written.
    copies : dict
        The copies so far: tensors that are one, tied weights for example, stay one.
    """
    if isinstance(value, torch.Tensor):
        if value.device.type != "hpu":
            return value
        key = (
            value.untyped_storage()._cdata,
            value.dtype,
            value.storage_offset(),
            value.shape,
            value.stride(),
            type(value),
        )
        if key not in copies:
            copies[key] = value.detach().cpu()
        return copies[key]
    if isinstance(value, dict):
        copied = copy.copy(value)  # with its attributes: a state's _metadata is one
        copied.update((key, _on_host(item, copies)) for key, item in value.items())
        return copied
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_on_host(item, copies) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_on_host(item, copies) for item in value)
    return value


class HPUCheckpointIOBase:
    """Checkpoints whose tensors are on the host, so that they load on a machine without a card."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint whose tensors are on the host."""
        super().save_checkpoint(  # type: ignore[misc]
            _on_host(checkpoint, {}), path, storage_options=storage_options
        )
