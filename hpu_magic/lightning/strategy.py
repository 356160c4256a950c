"""The single-card strategy and the checkpoints it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["HPUCheckpointIOBase", "SingleHPUStrategyBase"]


def _mark_step() -> None:
    """End the graph being recorded, where the vendor's lazy mode records one."""
    from habana_frameworks.torch.utils.internal import is_lazy

    if is_lazy():
        import habana_frameworks.torch.core as htcore

        htcore.mark_step()


def _on_cpu(value: Any) -> Any:
    """Return ``value`` with the tensors inside dicts, lists and tuples copied to the host."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu() if value.device.type == "hpu" else value
    if isinstance(value, dict):
        copied = value.copy()
        copied.update((key, _on_cpu(item)) for key, item in value.items())
        return copied
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_on_cpu(item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_on_cpu(item) for item in value)
    return value


class HPUCheckpointIOBase:
    """What ``HPUCheckpointIO`` does: checkpoints that load on a machine without a card."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint whose tensors are on the host."""
        super().save_checkpoint(  # type: ignore[misc]
            _on_cpu(checkpoint), path, storage_options=storage_options
        )


class SingleHPUStrategyBase:
    """What ``SingleHPUStrategy`` does: one process, one card.

    Lazy mode gathers operations into a graph until a step is marked; as the
    vendor documents, that is after ``backward`` and after the optimizer's step.
    """

    strategy_name = "hpu_single"

    def backward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run backward and, in lazy mode, execute it."""
        loss = super().backward(*args, **kwargs)  # type: ignore[misc]
        _mark_step()
        return loss

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the optimizer's step and, in lazy mode, execute it."""
        result = super().optimizer_step(*args, **kwargs)  # type: ignore[misc]
        _mark_step()
        return result
