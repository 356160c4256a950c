"""A fit of a ``transformers.Trainer`` as a panel's source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.huggingface.monitor import FitMonitorBase, monitor_class
from hpu_magic.runtime.measure.observation import FitSettings, loader_settings, optimizer_name
from hpu_magic.runtime.measure.source import Report

_LIBRARIES = ("transformers", "optimum", "trl")
_SHOWS_PROGRESS = ("ProgressCallback", "NotebookProgressCallback", "PrinterCallback")


def prepared(
    trainer: Any, model: Any, data: Any, arguments: dict[str, Any]
) -> tuple[TrainerSource, Callable[[], Any]]:
    """Return ``trainer.train(**arguments)`` as a source, and what runs it.

    Raises
    ------
    HPUError
        There is nothing that can be trained, or it is given a second time.
    """
    if model is not None and model is not trainer.model:
        raise HPUError(
            f"A Trainer of transformers has its model, a {type(trainer.model).__name__}, and takes "
            f"no other, such as a {type(model).__name__}: write hpu_magic.fit(trainer)."
        )
    if data is not None:
        raise HPUError(
            "A Trainer of transformers takes its data as train_dataset when it is made, not a "
            f"{type(data).__name__} here: write hpu_magic.fit(trainer)."
        )
    if any(isinstance(one, FitMonitorBase) for one in trainer.callback_handler.callbacks):
        raise HPUError(
            "This Trainer's fit runs already, with its panel: let it end, or make another Trainer "
            "for a fit within it."
        )
    loads = getattr(trainer.get_train_dataloader, "__module__", "")
    if trainer.train_dataset is None and loads.partition(".")[0] in _LIBRARIES:
        raise HPUError(
            "The Trainer has no data: give it a train_dataset when it is made, "
            "Trainer(model, args, train_dataset=...)."
        )
    _check_weights(trainer.model)
    return TrainerSource(trainer), lambda: trainer.train(**arguments)


def _check_weights(model: Any) -> None:
    """Refuse weights without values, unless they are kept elsewhere and brought when needed."""
    if model is None or getattr(model, "hf_device_map", None) is not None:
        return
    empty = [name for name, weight in model.named_parameters() if weight.device.type == "meta"]
    if empty:
        raise HPUError(
            f"{len(empty)} weights of the model are on meta and have no values, {empty[0]} for "
            "one: make the model outside of torch.device('meta'), or load it by from_pretrained."
        )


def source_of(trainer: Any) -> TrainerSource | None:
    """Return a fit as a source, or None where a panel observes it already."""
    callbacks = trainer.callback_handler.callbacks
    if any(isinstance(callback, FitMonitorBase) for callback in callbacks):
        return None
    return TrainerSource(trainer)


class TrainerSource:
    """Observes ``trainer.train()``.

    Parameters
    ----------
    trainer
        The Trainer, or one of a derived class.
    """

    kind = "Fit"

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._monitor: FitMonitorBase | None = None
        self.device = trainer.args.device
        self.rank: int = trainer.args.process_index
        self.ranks: int = trainer.args.world_size

    @property
    def model_name(self) -> str:
        """The class of the model; of one with adapters, that of the model below them."""
        model = self._trainer.model
        model = getattr(model, "_orig_mod", model)  # of one that was compiled
        with suppress(Exception):  # whatever else has a method of this name
            model = model.get_base_model()
        return type(model).__name__

    @property
    def metrics(self) -> dict[str, float]:
        """What was logged."""
        return {} if self._monitor is None else self._monitor.metrics

    @property
    def settings(self) -> FitSettings:
        """What the Trainer's arguments say."""
        args = self._trainer.args
        halves = [name for name in ("bf16", "fp16") if getattr(args, name, False)]
        return FitSettings(
            precision=f"{halves[0]}-mixed" if halves else "32-true",
            accumulate=args.gradient_accumulation_steps,
            optimizer=optimizer_name(self._trainer.optimizer),
            loader=loader_settings(self._trainer.callback_handler.train_dataloader),
            framework="transformers",
        )

    @contextmanager
    def attached(self, report: Report) -> Iterator[None]:
        """Report the fit inside the block through a callback, in place of the Trainer's bars."""
        self._monitor = monitor = monitor_class()(report)
        callbacks = self._trainer.callback_handler.callbacks
        before = list(callbacks)
        # Last, so that it sees what the others have decided.
        callbacks[:] = [*(one for one in before if not _shows_progress(one)), monitor]
        try:
            with monitor.hearing(self._trainer):
                yield
        except BaseException:
            monitor.failed()
            raise
        finally:
            added = [one for one in callbacks if one is not monitor and one not in before]
            kept = [one for one in before if one in callbacks or _shows_progress(one)]
            callbacks[:] = kept + added
            monitor.release()

    def stop(self) -> None:
        """End the fit after the current step; the callback looks at each step's end itself."""

    def interrupted(self, error: BaseException) -> bool:
        """Tell whether an interrupt ended the fit."""
        return isinstance(error, KeyboardInterrupt)


def _shows_progress(callback: Any) -> bool:
    """Tell whether a callback is one that the Trainer adds to show how it is doing."""
    return type(callback).__module__.startswith("transformers.") and (
        type(callback).__name__ in _SHOWS_PROGRESS
    )
