"""The single-card strategies, of ``Trainer`` and of ``Fabric``.

Lazy mode gathers operations into a graph until a step is marked. The strategies mark where the
vendor documents it: after ``backward``, after the optimizer's step, and after a step of
evaluation; step closures run there. In eager mode there is nothing to mark.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "SINGLE",
    "FabricSingleHPUStrategyBase",
    "SingleHPUStrategyBase",
    "TrainerSingleHPUStrategyBase",
]

SINGLE = "hpu_single"
"""The name of the strategies for ``Trainer(strategy=...)`` and ``Fabric(strategy=...)``."""


def _marked(result: Any) -> Any:
    """Return `result` after the end of the graph, where the vendor's lazy mode records one."""
    from habana_frameworks.torch.utils.internal import is_lazy

    if is_lazy():
        import habana_frameworks.torch.core as htcore

        htcore.mark_step()
    return result


def _card(device: Any) -> torch.device:
    """Return the device with its index, as its tensors have it."""
    named = torch.device(device)
    return torch.device("hpu", 0) if named == torch.device("hpu") else named


class SingleHPUStrategyBase:
    """What both strategies do: one process, one card."""

    strategy_name = SINGLE
    namespace: str
    _accelerator: Any
    _checkpoint_io: Any
    _checkpoint_io_class: type[Any]

    @property
    def checkpoint_io(self) -> Any:
        """How checkpoints are written: by ``HPUCheckpointIO``, where nothing else is given."""
        if self._checkpoint_io is None:
            self._checkpoint_io = self._checkpoint_io_class()
        elif getattr(self._checkpoint_io, "checkpoint_io", self) is None:
            # One that passes on to another, as the asynchronous one does, and was given none.
            self._checkpoint_io.checkpoint_io = self._checkpoint_io_class()
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: Any) -> None:
        self._checkpoint_io = io

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run backward and, in lazy mode, execute it."""
        return _marked(super().backward(*args, **kwargs))  # type: ignore[misc]

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the optimizer's step and, in lazy mode, execute it."""
        return _marked(super().optimizer_step(*args, **kwargs))  # type: ignore[misc]

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy under its name."""
        strategy_registry.register(
            cls.strategy_name, cls, description="one process on one Intel Gaudi card", override=True
        )


class TrainerSingleHPUStrategyBase(SingleHPUStrategyBase):
    """Strategy for one process on one card.

    Parameters
    ----------
    device
        The device, which is ``hpu`` for each process.
    accelerator
        An ``HPUAccelerator``.
    checkpoint_io
        How checkpoints are written; an ``HPUCheckpointIO`` by default.
    precision_plugin
        An ``HPUPrecisionPlugin``.
    """

    def __init__(
        self,
        device: Any = "hpu",
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            device=_card(device),
            accelerator=accelerator,
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
        )

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of validation and, in lazy mode, execute it."""
        return _marked(super().validation_step(*args, **kwargs))  # type: ignore[misc]

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of a test and, in lazy mode, execute it."""
        return _marked(super().test_step(*args, **kwargs))  # type: ignore[misc]

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of prediction and, in lazy mode, execute it."""
        return _marked(super().predict_step(*args, **kwargs))  # type: ignore[misc]


class FabricSingleHPUStrategyBase(SingleHPUStrategyBase):
    """Strategy for one process on one card.

    Parameters
    ----------
    device
        The device, which is ``hpu`` for each process.
    accelerator
        An ``HPUAccelerator``.
    checkpoint_io
        How checkpoints are written; an ``HPUCheckpointIO`` by default.
    precision
        An ``HPUPrecision``.
    """

    def __init__(
        self,
        device: Any = "hpu",
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision: Any = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            device=_card(device),
            accelerator=accelerator,
            checkpoint_io=checkpoint_io,
            precision=precision,
        )
