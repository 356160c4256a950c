"""Describe the state of a fit in text, for views and other processes."""

from __future__ import annotations

from collections.abc import Sequence

from hpu_magic import units
from hpu_magic.panels.metric_chart import number
from hpu_magic.panels.view import STOPPING, Head
from hpu_magic.runtime.training.curves import Curves
from hpu_magic.runtime.training.not_finite import NotFinite
from hpu_magic.runtime.training.progress import FitProgress

_NOT_FINITE_NAMED = 2
_VALUES_SHOWN = 10


def head_of(
    progress: FitProgress, model_name: str, device_label: str, *, stopping: bool = False
) -> Head:
    """Return the current state of a fit.

    ``stopping`` is True as soon as Stop is pressed; the fit only checks this after a batch.
    """
    details = [device_label]
    if (pace := progress.steps_per_second) is not None:
        details.insert(0, units.rate(pace))
    if (left := progress.remaining) is not None:
        details.insert(1, f"about {units.rough(left)} left")
    if progress.card_step is not None:
        details.insert(-1, f"card time {progress.card_step.text('step')}")
    word = "Training" if progress.training_began is not None else "Starting"
    if progress.long_validation:
        word = "Validating"
    if stopping or progress.stopping:
        word = STOPPING
    return Head(
        word,
        model_name,
        progress.where(short_validations=False),
        tuple(details),
        progress.share,
        not_finite_text(progress.not_finite),
        _values(progress.curves),
        progress.seconds if progress.endless else None,
    )


def not_finite_text(noted: Sequence[NotFinite]) -> str:
    """List the curves that became NaN or infinite, starting with those that did not recover."""
    ordered = sorted(noted, key=lambda each: not each.lasting)
    more = len(ordered) - _NOT_FINITE_NAMED
    named = ", ".join(each.brief for each in ordered[:_NOT_FINITE_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _values(curves: Curves) -> tuple[str, ...]:
    shown = [(curve.name, curve.last) for curve in curves.shown if curve.last is not None]
    values = [f"{name} {number(last.value)}" for name, last in shown[:_VALUES_SHOWN]]
    more = len(shown) - _VALUES_SHOWN
    if more > 0:
        values.append(f"{more} more")
    if curves.unfollowed:
        values.append(f"{len(curves.unfollowed)} more are not tracked")
    return tuple(values)
