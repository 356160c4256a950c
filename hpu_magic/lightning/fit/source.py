"""A panel source that monitors a fit of Lightning's ``Trainer``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.lightning.fit.monitor import LightningMonitorBase
from hpu_magic.lightning.names import trainer_namespace
from hpu_magic.lightning.namespaces import default_namespace, plugins
from hpu_magic.runtime.training.observation import FitSettings, loader_settings, optimizer_name
from hpu_magic.runtime.training.source import FitReport


def prepared(
    trainer: Any, model: Any, data: Any, arguments: dict[str, Any]
) -> tuple[LightningSource, Callable[[], None]]:
    """Return a source for ``trainer.fit(model, data, **arguments)``, and a function that runs it.

    Raises
    ------
    HPUError
        The model is not a ``LightningModule``.
    """
    pytorch: Any = sys.modules[trainer_namespace(trainer) or default_namespace()]
    if not isinstance(model, pytorch.LightningModule):
        described = "None" if model is None else f"a {type(model).__name__}"
        raise HPUError(
            f"fit needs a LightningModule to train, but got {described}: "
            "write hpu_magic.fit(trainer, model, data)."
        )
    arguments = dict(arguments)
    if isinstance(data, pytorch.LightningDataModule):
        arguments["datamodule"] = data
    elif isinstance(data, tuple) and len(data) == 2:
        arguments["train_dataloaders"], arguments["val_dataloaders"] = data
    elif data is not None:
        arguments["train_dataloaders"] = data
    return LightningSource(trainer, model), lambda: trainer.fit(model, **arguments)


def source_of(trainer: Any, model: Any) -> LightningSource | None:
    """Return a source for the fit, or None if a panel already monitors it."""
    if any(isinstance(callback, LightningMonitorBase) for callback in trainer.callbacks):
        return None
    return LightningSource(trainer, model)


class LightningSource:
    """Monitors ``trainer.fit(model)``."""

    kind = "Fit"

    def __init__(self, trainer: Any, model: Any) -> None:
        self._trainer = trainer
        self._monitor: LightningMonitorBase | None = None
        self.model_name = type(model).__name__
        self.device = trainer.strategy.root_device
        self.rank: int = trainer.global_rank
        self.ranks: int = trainer.world_size

    @property
    def metrics(self) -> dict[str, float]:
        """The callback metrics that are single numbers."""
        logged = self._trainer.callback_metrics
        return {str(name): float(value) for name, value in logged.items() if _is_one_number(value)}

    @property
    def settings(self) -> FitSettings:
        """The settings of the Trainer."""
        trainer = self._trainer
        return FitSettings(
            precision=str(trainer.precision),
            accumulate=trainer.accumulate_grad_batches,
            optimizer=optimizer_name(trainer.optimizers),
            loader=loader_settings(trainer.train_dataloader),
            framework="lightning",
            deepspeed=_deepspeed(trainer.strategy),
        )

    @contextmanager
    def attached(self, report: FitReport) -> Iterator[None]:
        """Report the fit that runs inside the with block, using a callback."""
        trainer = self._trainer
        monitor_class = plugins(trainer_namespace(trainer) or default_namespace()).FitMonitor
        self._monitor = monitor = monitor_class(
            report.sampler, report.progress, report.stopped, report.interval, report.polls
        )
        try:
            with _instead_of_progress_bar(trainer, monitor), _restored_interrupt_handler():
                yield
        finally:
            monitor.release(trainer)

    def stop(self) -> None:
        """End the fit after the current batch."""
        if self._monitor is not None:
            self._monitor.stop()

    def interrupted(self, error: BaseException) -> bool:
        """Return whether an interrupt ended the fit.

        After an interrupt, Lightning shuts down gracefully and then raises SystemExit. Versions
        before 2.6 call exit(1) instead, which raises NameError because IPython hides that name from
        the code of a cell.
        """
        return isinstance(error, KeyboardInterrupt) or (
            isinstance(error, SystemExit | NameError)
            and isinstance(error.__context__, KeyboardInterrupt)
        )


def _deepspeed(strategy: Any) -> dict[str, Any] | None:
    """Return DeepSpeed's configuration if the strategy trains with DeepSpeed."""
    name = getattr(strategy, "strategy_name", None) or ""
    return strategy.config if "deepspeed" in name else None


def _is_one_number(value: Any) -> bool:
    elements = value.numel() if hasattr(value, "numel") else isinstance(value, (int, float))
    return bool(elements == 1)


@contextmanager
def _instead_of_progress_bar(trainer: Any, monitor: Any) -> Iterator[None]:
    """Replace the Trainer's progress bar with our callback for one fit."""
    bar = trainer.progress_bar_callback
    shown = bar is not None and getattr(bar, "is_enabled", False)
    if shown:
        bar.disable()
    trainer.callbacks.insert(0, monitor)
    try:
        yield
    finally:
        trainer.callbacks[:] = [each for each in trainer.callbacks if each is not monitor]
        if shown:
            bar.enable()


@contextmanager
def _restored_interrupt_handler() -> Iterator[None]:
    """Restore the interrupt handler, which Lightning leaves disabled after an interrupt."""
    handler = signal.getsignal(signal.SIGINT)
    # Only the main thread can set a handler, and only a handler of Python can be set again.
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
