"""What all strategies do on a card, and the single-card strategies, of ``Trainer`` and ``Fabric``.

Lazy mode gathers operations into a graph until a step is marked. The strategies mark where the
vendor documents it: after ``backward``, after the optimizer's step, and after a step of
evaluation; step closures run there. In eager mode there is nothing to mark.
"""

from __future__ import annotations

from typing import Any

from hpu_magic.lightning.devices import card

SINGLE = "hpu_single"
"""The name of the strategies for ``Trainer(strategy=...)`` and ``Fabric(strategy=...)``."""


def _marked(result: Any) -> Any:
    """Return `result` after the end of the graph, where the vendor's lazy mode records one."""
    from habana_frameworks.torch.utils.internal import is_lazy

    if is_lazy():
        import habana_frameworks.torch.core as htcore

        htcore.mark_step()
    return result


class StrategyOnHPU:
    """What every strategy of ours does, whichever of Lightning's it derives from."""

    strategy_name: str
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
        description = (cls.__doc__ or "").partition("\n")[0].rstrip(".")
        strategy_registry.register(cls.strategy_name, cls, description=description, override=True)


class EvaluationOnHPU:
    """What the strategies of ``Trainer`` do besides."""

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of validation and, in lazy mode, execute it."""
        return _marked(super().validation_step(*args, **kwargs))  # type: ignore[misc]

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of a test and, in lazy mode, execute it."""
        return _marked(super().test_step(*args, **kwargs))  # type: ignore[misc]

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a step of prediction and, in lazy mode, execute it."""
        return _marked(super().predict_step(*args, **kwargs))  # type: ignore[misc]


class SingleHPUStrategyBase(StrategyOnHPU):
    """One process on one Intel Gaudi card.

    Parameters
    ----------
    device
        The device, which is ``hpu`` for each process.
    *args, **kwargs
        As Lightning's ``SingleDeviceStrategy`` has them: `accelerator`, an ``HPUAccelerator``;
        `checkpoint_io`, an ``HPUCheckpointIO`` by default; and `precision_plugin`, an
        ``HPUPrecisionPlugin``, which for ``Fabric`` is `precision`, an ``HPUPrecision``.
    """

    strategy_name = SINGLE

    def __init__(self, device: Any = "hpu", *args: Any, **kwargs: Any) -> None:
        super().__init__(card(device), *args, **kwargs)  # type: ignore[call-arg]


class TrainerSingleHPUStrategyBase(EvaluationOnHPU, SingleHPUStrategyBase):  # noqa: D101 (below)
    __doc__ = SingleHPUStrategyBase.__doc__
