"""Suggestions for the slowest parts of a script, based on the rules of `hpu_magic.advise`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpu_magic import units
from hpu_magic.advice.changes import Choice, Settings, modes, optimizers, precisions
from hpu_magic.advice.observed import YOUR_LOADER, of_fit
from hpu_magic.advice.report import Advice, ordered
from hpu_magic.advice.suggestion import Gain, Suggestion
from hpu_magic.dry_runs.step_time import StepTime
from hpu_magic.estimates.cost.hardware import GENERATIONS
from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.measure.ledger_report import FALLBACK, WAIT, Entry, LedgerReport
from hpu_magic.runtime.training.observation import FitSettings, LoaderSettings, Observation

if TYPE_CHECKING:
    from hpu_magic.dry_runs.lines import Line

_LARGE = 0.2  # smallest share of a step for which a change is suggested
_NOTABLE = 0.05
_MODEL = "model"


def advice(
    script: str,
    card: str,
    mode: str,
    optimizer: str,
    time: StepTime,
    fallbacks: Sequence[Line],
    host_reads: Sequence[Line],
) -> Advice:
    """Return suggestions for the parts of a step that take most of its time."""
    settings = Settings(
        mode,
        "fp32" if time.in_float32 else "bf16",
        not time.whole_run,
        optimizer,
        GENERATIONS[card.lower()].has_fp8,
    )
    waits = host_reads if _share(time, "waiting") >= _NOTABLE else ()
    observed = _observation(mode, optimizer, time, fallbacks, waits)
    found = [*_of_limits(settings, time), *(_as_estimate(each, time) for each in of_fit(observed))]
    subject = f"the run of {script}" if time.whole_run else f"a step of {script}"
    return Advice(subject, ordered(found))


def _share(time: StepTime, *limits: str) -> float:
    total = sum(time.limits.values())
    return sum(time.limits.get(each, 0.0) for each in limits) / total if total else 0.0


def _of_limits(settings: Settings, time: StepTime) -> Iterator[Suggestion]:
    # An ideal host only launches operators, so waiting for it is a wait for launches.
    names = ("launches",) if time.host_is_measured else ("launches", "waiting")
    if (share := _share(time, *names)) >= _LARGE:
        why = f"Launching operators takes {100 * share:.0f} % of the time."
        # Compiling the model does not change the optimizer.
        passes = sum(time.phases.get(each, 0.0) for each in ("forward", "backward"))
        most = min(share, passes / time.seconds) if time.phases and time.seconds else share
        yield from _first(modes(settings, _MODEL), why, most)
    if (share := _share(time, "matrix")) >= _LARGE:
        why = f"The matrix engines limit {100 * share:.0f} % of the time."
        yield from _first(precisions(settings, _MODEL, None, None), why)
    updates = time.phases.get("optimizer", 0.0)
    if time.seconds and (share := updates / time.seconds) >= _NOTABLE:
        why = f"The optimizer takes {units.duration(updates)}, {100 * share:.0f} % of a step."
        yield from _first(optimizers(settings, _MODEL), why)


def _as_estimate(suggestion: Suggestion, time: StepTime) -> Suggestion:
    """Return a suggestion for a fit, whose step was not measured on a card."""
    if suggestion.gain is None:
        return suggestion
    if suggestion.by_hand == YOUR_LOADER and not time.host_is_measured:
        return replace(suggestion, gain=None)  # another machine will load the batches
    return replace(suggestion, gain=replace(suggestion.gain, source="estimate"))


def _first(choices: Iterator[Choice], why: str, share: float = 0.0) -> Iterator[Suggestion]:
    """Yield a suggestion for the first choice, which can save at most this share of the time."""
    for choice in choices:
        most = Gain(1 / (1 - min(share, 0.99)), "estimate") if share else None
        why = f"{why} {choice.remark}".rstrip()
        yield Suggestion(choice.title, why, choice.change, most, by_hand=choice.by_hand)
        return


def _observation(
    mode: str,
    optimizer: str,
    time: StepTime,
    fallbacks: Sequence[Line],
    host_reads: Sequence[Line],
) -> Observation:
    """Describe the steps like those of a fit."""
    operators: dict[str, int] = {}
    for line in fallbacks:
        operators[line.what] = operators.get(line.what, 0) + line.count
    causes = [(FALLBACK, line) for line in fallbacks] + [(WAIT, line) for line in host_reads]
    entries = [
        Entry(kind, line.what, line.place if line.file else "", count=line.count, file=line.file)
        for kind, line in causes
    ]
    loader = time.data.loader
    waited = time.waited
    return Observation(
        device="hpu:0",
        mode=mode,
        settings=FitSettings(
            optimizer=optimizer,
            loader=None
            if loader is None
            else LoaderSettings(loader["workers"], loader["pinned"], loader["persistent"]),
        ),
        epochs=1,
        training_seconds=time.seconds + (0.0 if time.host_is_measured else waited),
        waited_seconds=waited or None,
        counts=DeviceCounts(fallbacks=operators),
        later=DeviceCounts(time.recompiled, time.recompilation),
        ledger=LedgerReport(touched=True, fallbacks=operators, entries=entries),
    )
