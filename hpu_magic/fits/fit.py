"""Run a fit of a framework's Trainer with the live panel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.fits.folded_frames import FoldedFrames
from hpu_magic.huggingface.names import is_trainer as is_transformers_trainer
from hpu_magic.lightning.names import trainer_namespace
from hpu_magic.panels.notebook import PANELS
from hpu_magic.panels.panel import checked_interval
from hpu_magic.panels.result import FitResult
from hpu_magic.panels.session import observed_fit
from hpu_magic.runtime.measure.source import FitSource

FIT_INTERVAL = 0.1
"""Seconds between two samples of a fit's panel, which is drawn twice a second at most."""


_listeners: list[Callable[[FitResult], None]] = []


def fit(
    trainer: Any,
    model: Any = None,
    data: Any = None,
    *,
    interval: float = FIT_INTERVAL,
    panel: str = "auto",
    **arguments: Any,
) -> FitResult:
    """Run ``trainer.fit(model, data)`` or ``trainer.train()`` with the live panel.

    Parameters
    ----------
    trainer : lightning.pytorch.Trainer or transformers.Trainer
        The Trainer; any accelerator. Those derived from them count, such as ``GaudiTrainer``
        and the ones of trl.
    model : lightning.pytorch.LightningModule, optional
        What to train; a Trainer of transformers has its own.
    data : DataLoader, LightningDataModule or pair of DataLoaders, optional
        Training data, or training and validation data as a pair; left out when
        the model, or the Trainer, brings its own.
    interval : float
        Seconds between two samples, 0.02 to 60; the panel is drawn twice a second at most.
    panel : str
        In a notebook: ``widget``, ``picture`` for front ends that show no widgets, or ``auto``,
        the widget where the page shows it and the picture elsewhere.
    **arguments
        Others of ``trainer.fit`` or ``trainer.train``, such as ``ckpt_path`` or
        ``resume_from_checkpoint``.

    Returns
    -------
    FitResult
        What it came to.

    Raises
    ------
    RefusedError
        When an argument is not what it has to be; nothing has run then.
    KeyboardInterrupt
        When the fit was interrupted.
    """
    results: list[FitResult] = []
    with FoldedFrames():
        fit_and_tell(
            trainer,
            model,
            data,
            interval=interval,
            panel=panel,
            ended=results.append,
            **arguments,
        )
    return results[0]


def fit_and_tell(
    trainer: Any,
    model: Any = None,
    data: Any = None,
    *,
    interval: float,
    panel: str,
    ended: Callable[[FitResult], None],
    **arguments: Any,
) -> None:
    """Do as `fit`, but hand the result to ``ended``, which hears of failed fits too."""
    source, run = _prepared(trainer, model, data, arguments)
    checked_interval(interval)
    check_panel(panel)

    def told(result: FitResult) -> None:
        ended(result)
        tell(result)

    observed_fit(source, run, interval, panel, told)


def tell(result: FitResult) -> None:
    """Hand a result to whoever hears of all."""
    for listener in _listeners:
        listener(result)


@contextmanager
def results_heard(listener: Callable[[FitResult], None]) -> Iterator[None]:
    """Hand the results of all fits of ours and loops inside the block to a listener too."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def check_panel(panel: str) -> None:
    """Refuse a panel that there is not."""
    if panel not in PANELS:
        raise RefusedError(f"panel is one of {', '.join(PANELS)}, not {panel!r}.")


def _prepared(
    trainer: Any, model: Any, data: Any, arguments: dict[str, Any]
) -> tuple[FitSource, Callable[[], Any]]:
    """Return the fit as a source, and what runs it."""
    if trainer_namespace(trainer) is not None:
        from hpu_magic.lightning.source import prepared

        return prepared(trainer, model, data, arguments)
    if is_transformers_trainer(trainer):
        from hpu_magic.huggingface.source import prepared as prepared_for_transformers

        return prepared_for_transformers(trainer, model, data, arguments)
    described = "None" if trainer is None else f"a {type(trainer).__name__}"
    raise RefusedError(
        f"fit needs a Trainer of Lightning or transformers first, not {described}: write "
        "hpu_magic.fit(trainer, model, data), or hpu_magic.fit(trainer) for one of transformers."
    )
