"""Run the fit of a framework's Trainer with a live panel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.fits.result import FitResult
from hpu_magic.fits.session import observed_fit
from hpu_magic.huggingface.names import is_trainer as is_transformers_trainer
from hpu_magic.lightning.names import trainer_namespace
from hpu_magic.panels.notebook import PANELS
from hpu_magic.panels.panel import checked_interval
from hpu_magic.runtime.training.source import FitSource

_listeners: list[Callable[[FitResult], None]] = []


def fit_with_callback(
    trainer: Any,
    model: Any = None,
    data: Any = None,
    *,
    interval: float,
    panel: str,
    ended: Callable[[FitResult], None],
    **arguments: Any,
) -> None:
    """Run a fit with a live panel; see `hpu_magic.fit`.

    ``ended`` is called with the result, even if the fit fails.
    """
    source, run = _prepared(trainer, model, data, arguments)
    checked_interval(interval)
    check_panel(panel)

    def on_end(result: FitResult) -> None:
        ended(result)
        announce(result)

    observed_fit(source, run, interval, panel, on_end)


def announce(result: FitResult) -> None:
    """Pass a result to all listeners."""
    for listener in _listeners:
        listener(result)


@contextmanager
def results_announced_to(listener: Callable[[FitResult], None]) -> Iterator[None]:
    """Inside the with block, pass the results of `hpu_magic.fit` and of loops to a listener."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def check_panel(panel: str) -> None:
    """Raise `HPUError` if `panel` is unknown."""
    if panel not in PANELS:
        raise HPUError(f"panel must be one of {', '.join(PANELS)}, got {panel!r}.")


def _prepared(
    trainer: Any, model: Any, data: Any, arguments: dict[str, Any]
) -> tuple[FitSource, Callable[[], Any]]:
    """Return the source that monitors a fit, and the function that runs the fit."""
    if trainer_namespace(trainer) is not None:
        from hpu_magic.lightning.fit.source import prepared

        return prepared(trainer, model, data, arguments)
    if is_transformers_trainer(trainer):
        from hpu_magic.huggingface.source import prepared as prepared_for_transformers

        return prepared_for_transformers(trainer, model, data, arguments)
    described = "None" if trainer is None else f"a {type(trainer).__name__}"
    raise HPUError(
        f"The first argument must be a Lightning or transformers Trainer, got {described}: call "
        "hpu_magic.fit(trainer, model, data), or hpu_magic.fit(trainer) for transformers."
    )
