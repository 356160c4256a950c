"""Fit a Lightning model with the live panel."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.lightning.monitor import FitMonitorBase
from hpu_magic.lightning.names import loaded_namespaces
from hpu_magic.panels.folded_frames import FoldedFrames
from hpu_magic.panels.notebook import PANELS
from hpu_magic.panels.panel import checked_interval
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.session import observed_fit

__all__ = ["FIT_INTERVAL", "fit", "fit_and_tell", "observed_fits"]

FIT_INTERVAL = 0.1
"""Seconds between two samples of a fit's panel, which is drawn twice a second at most."""


def fit(
    trainer: Any,
    model: Any,
    data: Any = None,
    *,
    interval: float = FIT_INTERVAL,
    panel: str = "auto",
) -> FitResult:
    """Run ``trainer.fit(model, data)`` with the live panel and return what it came to.

    Parameters
    ----------
    trainer : lightning.pytorch.Trainer
        The Trainer; any accelerator.
    model : lightning.pytorch.LightningModule
        What to train.
    data : DataLoader, LightningDataModule or pair of DataLoaders, optional
        Training data, or training and validation data as a pair; left out when
        the model brings its own.
    interval : float
        Seconds between two samples, 0.02 to 60; the panel is drawn twice a second at most.
    panel : str
        In a notebook: ``widget``, ``picture`` for front ends that show no widgets, or ``auto``,
        the widget where the page shows it and the picture elsewhere.

    Raises
    ------
    RefusedError
        When an argument is not what it has to be; nothing has run then.
    KeyboardInterrupt
        When the fit was interrupted.
    """
    results: list[FitResult] = []
    with FoldedFrames():
        fit_and_tell(trainer, model, data, interval=interval, panel=panel, ended=results.append)
    return results[0]


def fit_and_tell(
    trainer: Any,
    model: Any,
    data: Any = None,
    *,
    interval: float,
    panel: str,
    ended: Callable[[FitResult], None],
) -> None:
    """Do as `fit`, but hand the result to ``ended``, which hears of failed fits too."""
    pytorch = _lightning_of(trainer)
    checked_interval(interval)
    _check_panel(panel)
    if not isinstance(model, pytorch.LightningModule):
        raise RefusedError(
            f"fit needs a LightningModule to train, not {_described(model)}: "
            "write hpu_magic.fit(trainer, model, data)."
        )
    arguments: dict[str, Any] = {}
    if isinstance(data, pytorch.LightningDataModule):
        arguments["datamodule"] = data
    elif isinstance(data, tuple) and len(data) == 2:
        arguments["train_dataloaders"], arguments["val_dataloaders"] = data
    elif data is not None:
        arguments["train_dataloaders"] = data
    observed_fit(trainer, lambda: trainer.fit(model, **arguments), model, interval, panel, ended)


@contextmanager
def observed_fits(interval: float = FIT_INTERVAL, panel: str = "auto") -> Iterator[list[FitResult]]:
    """Give every ``trainer.fit(...)`` inside the block its own panel; see `fit`.

    Yields
    ------
    list of FitResult
        Filled as the fits end, failed ones too.

    Raises
    ------
    RefusedError
        When an argument is not what it has to be or no Lightning is installed.
    """
    checked_interval(interval)
    _check_panel(panel)
    results: list[FitResult] = []
    originals = [(trainer, trainer.fit) for trainer in _trainer_classes()]
    for trainer_class, original in originals:
        trainer_class.fit = _observed(original, results, interval, panel)
    try:
        yield results
    finally:
        for trainer_class, original in originals:
            trainer_class.fit = original


def _observed(
    original: Callable[..., Any], results: list[FitResult], interval: float, panel: str
) -> Callable[..., Any]:
    @functools.wraps(original)
    def fit(self: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        def run() -> None:
            original(self, model, *args, **kwargs)

        if any(isinstance(callback, FitMonitorBase) for callback in self.callbacks):
            run()
        else:
            with FoldedFrames():
                observed_fit(self, run, model, interval, panel, results.append)

    return fit


def _check_panel(panel: str) -> None:
    if panel not in PANELS:
        raise RefusedError(f"panel is one of {', '.join(PANELS)}, not {panel!r}.")


def _trainer_classes() -> list[Any]:
    names = loaded_namespaces()
    if not names:
        from hpu_magic.lightning.namespaces import default_namespace

        try:
            names = [default_namespace()]
        except ModuleNotFoundError as missing:
            raise RefusedError(str(missing)) from None
    return [importlib.import_module(name).Trainer for name in names]


def _lightning_of(trainer: Any) -> Any:
    for name in loaded_namespaces():
        pytorch = sys.modules[name]
        if isinstance(trainer, pytorch.Trainer):
            return pytorch
    raise RefusedError(
        f"fit needs a Lightning Trainer first, not {_described(trainer)}: "
        "write hpu_magic.fit(trainer, model, data)."
    )


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
