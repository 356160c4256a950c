"""The base class of all strategies, and the single-card strategies.

Lazy mode collects operations in a graph until a step is marked. As the vendor documents, the
strategies mark a step after ``backward``, after the optimizer step and after each evaluation step.
In eager mode, steps do not need to be marked.
"""

from __future__ import annotations

from typing import Any

from hpu_magic.lightning.processes.devices import card

SINGLE = "hpu_single"
"""Name of the single-card strategies."""


def _marked(result: Any) -> Any:
    """Mark a step if the process is in lazy mode, and return `result`."""
    from habana_frameworks.torch.utils.internal import is_lazy

    if is_lazy():
        import habana_frameworks.torch.core as htcore

        htcore.mark_step()
    return result


class StrategyOnHPU:
    """Base class of all strategies for the device."""

    strategy_name: str
    namespace: str
    _accelerator: Any
    _checkpoint_io: Any
    _checkpoint_io_class: type[Any]

    @property
    def checkpoint_io(self) -> Any:
        """The checkpoint plug-in, ``HPUCheckpointIO`` by default."""
        if self._checkpoint_io is None:
            self._checkpoint_io = self._checkpoint_io_class()
        elif getattr(self._checkpoint_io, "checkpoint_io", self) is None:
            # The plug-in is a wrapper, such as AsyncCheckpointIO, that does not wrap another
            # plug-in yet.
            self._checkpoint_io.checkpoint_io = self._checkpoint_io_class()
        return self._checkpoint_io

    @checkpoint_io.setter
    def checkpoint_io(self, io: Any) -> None:
        self._checkpoint_io = io

    def backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the backward pass; in lazy mode, mark a step to execute it."""
        return _marked(super().backward(*args, **kwargs))  # type: ignore[misc]

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the optimizer step; in lazy mode, mark a step to execute it."""
        return _marked(super().optimizer_step(*args, **kwargs))  # type: ignore[misc]

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy in Lightning's registry."""
        description = (cls.__doc__ or "").partition("\n")[0].rstrip(".")
        strategy_registry.register(cls.strategy_name, cls, description=description, override=True)


class EvaluationOnHPU:
    """Evaluation steps for ``Trainer``'s strategies."""

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a validation step; in lazy mode, mark a step to execute it."""
        return _marked(super().validation_step(*args, **kwargs))  # type: ignore[misc]

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a test step; in lazy mode, mark a step to execute it."""
        return _marked(super().test_step(*args, **kwargs))  # type: ignore[misc]

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run a prediction step; in lazy mode, mark a step to execute it."""
        return _marked(super().predict_step(*args, **kwargs))  # type: ignore[misc]


class SingleHPUStrategyBase(StrategyOnHPU):
    """Run one process on one Intel Gaudi card.

    Parameters
    ----------
    device
        The device; it is ``hpu`` in every process.
    *args, **kwargs
        Parameters of Lightning's ``SingleDeviceStrategy``, such as `checkpoint_io`, which is an
        ``HPUCheckpointIO`` by default.
    """

    strategy_name = SINGLE

    def __init__(self, device: Any = "hpu", *args: Any, **kwargs: Any) -> None:
        super().__init__(card(device), *args, **kwargs)  # type: ignore[call-arg]


class TrainerSingleHPUStrategyBase(EvaluationOnHPU, SingleHPUStrategyBase):  # noqa: D101 (below)
    __doc__ = SingleHPUStrategyBase.__doc__
