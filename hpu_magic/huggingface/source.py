"""A panel source that monitors a fit of a ``transformers.Trainer``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.huggingface.monitor import TransformersMonitorBase, monitor_class
from hpu_magic.runtime.training.observation import FitSettings, loader_settings, optimizer_name
from hpu_magic.runtime.training.source import FitReport

_LIBRARIES = ("transformers", "optimum", "trl")
_SHOWS_PROGRESS = ("ProgressCallback", "NotebookProgressCallback", "PrinterCallback")


def prepared(
    trainer: Any, model: Any, data: Any, arguments: dict[str, Any]
) -> tuple[TrainerSource, Callable[[], Any]]:
    """Return a source for ``trainer.train(**arguments)``, and a function that runs it.

    Raises
    ------
    HPUError
        An argument is not supported, a fit of this Trainer is already running, or the Trainer has
        no data or weights.
    """
    if model is not None and model is not trainer.model:
        raise HPUError(
            f"transformers' Trainer already has a model of type {type(trainer.model).__name__} and "
            f"cannot train a {type(model).__name__}: call hpu_magic.fit(trainer)."
        )
    if data is not None:
        raise HPUError(
            "transformers' Trainer gets its data from train_dataset, not from the "
            f"{type(data).__name__} passed here: call hpu_magic.fit(trainer)."
        )
    if source_of(trainer) is None:
        raise HPUError(
            "A fit of this Trainer is already running with a panel: wait until it ends, or create "
            "another Trainer for a nested fit."
        )
    loads = getattr(trainer.get_train_dataloader, "__module__", "")
    if trainer.train_dataset is None and loads.partition(".")[0] in _LIBRARIES:
        raise HPUError("The Trainer has no data: use Trainer(model, args, train_dataset=...).")
    _check_weights(trainer.model)
    return TrainerSource(trainer), lambda: trainer.train(**arguments)


def _check_weights(model: Any) -> None:
    """Reject weights without values, unless a device map loads them when they are needed."""
    if model is None or getattr(model, "hf_device_map", None) is not None:
        return
    empty = [name for name, weight in model.named_parameters() if weight.device.type == "meta"]
    if empty:
        raise HPUError(
            f"{len(empty)} of the model's weights, such as {empty[0]}, are on the meta device and "
            "have no values: create the model outside of torch.device('meta'), or load it with "
            "from_pretrained."
        )


def source_of(trainer: Any) -> TrainerSource | None:
    """Return a source for a fit, or None if a panel already monitors it."""
    callbacks = trainer.callback_handler.callbacks
    if any(isinstance(callback, TransformersMonitorBase) for callback in callbacks):
        return None
    return TrainerSource(trainer)


class TrainerSource:
    """Monitors ``trainer.train()``."""

    kind = "Fit"

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._monitor: TransformersMonitorBase | None = None
        self.device = trainer.args.device
        self.rank: int = trainer.args.process_index
        self.ranks: int = trainer.args.world_size

    @property
    def model_name(self) -> str:
        """The name of the model's class, ignoring the wrappers of torch.compile and adapters."""
        model = self._trainer.model
        model = getattr(model, "_orig_mod", model)  # unwrap a compiled model
        with suppress(Exception):  # other classes may have a method with this name
            model = model.get_base_model()
        return type(model).__name__

    @property
    def metrics(self) -> dict[str, float]:
        """The logged values."""
        return {} if self._monitor is None else self._monitor.metrics

    @property
    def settings(self) -> FitSettings:
        """The fit's settings, from the Trainer's arguments."""
        args = self._trainer.args
        halves = [name for name in ("bf16", "fp16") if getattr(args, name, False)]
        return FitSettings(
            precision=f"{halves[0]}-mixed" if halves else "32-true",
            accumulate=args.gradient_accumulation_steps,
            optimizer=optimizer_name(self._trainer.optimizer),
            loader=loader_settings(self._trainer.callback_handler.train_dataloader),
            framework="transformers",
            deepspeed=getattr(getattr(args, "hf_deepspeed_config", None), "config", None),
        )

    @contextmanager
    def attached(self, report: FitReport) -> Iterator[None]:
        """Inside the block, report the fit with a callback that replaces the progress callbacks."""
        self._monitor = monitor = monitor_class()(report)
        callbacks = self._trainer.callback_handler.callbacks
        before = list(callbacks)
        # This callback comes last, so that it sees the decisions of the others.
        callbacks[:] = [*(each for each in before if not _shows_progress(each)), monitor]
        try:
            with monitor.collecting_losses(self._trainer):
                yield
        except BaseException:
            monitor.failed()
            raise
        finally:
            added = [each for each in callbacks if each is not monitor and each not in before]
            kept = [each for each in before if each in callbacks or _shows_progress(each)]
            callbacks[:] = kept + added
            monitor.release()

    def stop(self) -> None:
        """Do nothing, because the callback checks for a stop request at the end of each step."""

    def interrupted(self, error: BaseException) -> bool:
        """Return whether an interrupt ended the fit."""
        return isinstance(error, KeyboardInterrupt)


def _shows_progress(callback: Any) -> bool:
    """Return whether a callback is one of the Trainer's progress callbacks."""
    return type(callback).__module__.startswith("transformers.") and (
        type(callback).__name__ in _SHOWS_PROGRESS
    )
