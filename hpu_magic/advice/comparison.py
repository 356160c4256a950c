"""Compare estimates with and without each choice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch import nn

from hpu_magic import units
from hpu_magic.advice.choices import LARGEST_BATCH_FACTOR, Choice, choices, of_batch
from hpu_magic.advice.suggestion import Gain, Suggestion, estimated
from hpu_magic.estimates.calls import uncompiled
from hpu_magic.estimates.deepspeed.configuration import loaded
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.estimate import estimate, step_of
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.tracing.fake_card import one_at_a_time

_LEAST = 1.02  # smaller gains are not shown
_WORTH_DOUBLING = 1.05
_OF_STEP = ("train", "optimizer", "checkpointing", "loss")
"""Arguments that determine a traced step; the others can differ in each of its estimates."""


@dataclass(frozen=True)
class _Estimated:
    choice: Choice
    found: Estimate


class Comparison:
    """Compares a model's current step with alternatives, using the given `estimate` arguments.

    Raises `EstimateError` if the current step cannot be estimated.
    """

    def __init__(
        self, model: nn.Module, inputs: tuple[Any, ...], arguments: Mapping[str, Any]
    ) -> None:
        self._model, self._inputs, self._arguments = uncompiled(model), inputs, dict(arguments)
        own = inspect.signature(estimate).parameters
        named = {name: value for name, value in arguments.items() if name not in own}
        of_step = {name: arguments[name] for name in _OF_STEP if name in arguments}
        self._step = step_of(model, inputs, named, **of_step)
        others = (arguments.keys() & own.keys()) - set(_OF_STEP)
        self._others = {name: arguments[name] for name in others}
        self.base = self._step.estimate(**self._others)
        self._deepspeed: Mapping[str, Any] | None = None
        if arguments.get("deepspeed") is not None:
            self._deepspeed = loaded(arguments["deepspeed"])
        # The alternatives are estimated for the uncompiled model.
        self._arguments["mode"] = self._others["mode"] = self.base.options.mode

    def suggestions(self, name: str, framework: str | None) -> Iterator[Suggestion]:
        """Yield changes that are useful or necessary; see `choices` for the arguments."""
        groups: dict[str, list[_Estimated]] = {}
        for choice in choices(self._model, self.base, name, framework, self._deepspeed):
            found = self._with(choice)
            if found is not None and self._gains(found):
                groups.setdefault(choice.group, []).append(_Estimated(choice, found))
        batch = self._batch(framework)
        if batch is not None:
            groups["batch"] = [batch]
        for several in groups.values():
            yield self._suggestion(several)

    def _with(self, choice: Choice) -> Estimate | None:
        if choice.during is not None:
            return self._with_other_operators(choice.during)
        try:
            if choice.arguments.keys().isdisjoint(_OF_STEP):
                step = self._step.with_buckets(choice.buckets)
                return step.estimate(**self._others | dict(choice.arguments))
            return estimate(self._model, *self._inputs, **self._arguments | dict(choice.arguments))
        except EstimateError:
            return None  # the model or the card does not support this choice

    def _with_other_operators(
        self, during: Callable[[], AbstractContextManager[Any]]
    ) -> Estimate | None:
        try:
            with one_at_a_time, during():
                return estimate(self._model, *self._inputs, **self._arguments)
        except (EstimateError, TypeError, ValueError, RuntimeError):
            return None  # the model passes arguments that the other operator does not accept

    def _gains(self, found: Estimate) -> bool:
        if not self.base.fits:
            return found.fits or found.peak < self.base.peak / _LEAST
        return found.fits and self._factor(found) >= _LEAST

    def _factor(self, found: Estimate) -> float:
        return found.samples_per_second / self.base.samples_per_second

    def _gain(self, found: Estimate) -> Gain:
        paces = self.base.samples_per_second, found.samples_per_second
        return estimated(*paces, (self.base.band, found.band))

    def _suggestion(self, several: list[_Estimated]) -> Suggestion:
        """Suggest the best choice in a group, and list the alternatives in the explanation."""
        base = self.base
        if not base.fits:
            several = [each for each in several if each.found.fits] or several
        best = max(several, key=self._rank)
        choice, found = best.choice, best.found
        why = [_change_of_time(base, found)]
        if not base.fits:
            why = [f"The memory per card changes from {base.memory_text} to {found.memory_text}."]
            why += ["This change alone is not enough to make the step fit."] * (not found.fits)
        why += [
            f"{other.choice.title}: {self._gain(other.found)}."
            for other in several
            if other is not best
        ]
        why += [choice.remark] * bool(choice.remark)
        return Suggestion(
            choice.title,
            " ".join(why),
            choice.change,
            self._gain(found),
            base.peak - found.peak,
            needed=not base.fits and found.fits,
            command=choice.command,
            by_hand=choice.by_hand,
        )

    def _rank(self, each: _Estimated) -> float:
        """Return the speed of a choice, halved if it needs lazy mode, which is to be removed."""
        return round(self._factor(each.found), 4) / (2 if each.choice.needs_lazy_mode else 1)

    def _batch(self, framework: str | None) -> _Estimated | None:
        """Return the batch size above which gains are small, or the largest one that fits."""
        if self._arguments.get("batch") == "largest" or not self.base.batch:
            return None
        best = None
        if not self.base.fits and self.base.batch > 1:
            best = self._with(of_batch("largest", self.base, framework))
        step = 4
        pace, size = self.base.samples_per_second, self.base.batch
        while self.base.fits and step > 1 and size < LARGEST_BATCH_FACTOR * self.base.batch:
            found = self._with(of_batch(size * step, self.base, framework))
            if found is None or not found.fits:
                step //= 2
                continue
            if found.samples_per_second < _WORTH_DOUBLING ** (step // 2) * pace:
                break
            best, pace, size = found, found.samples_per_second, size * step
        if best is None or not self._gains(best):
            return None
        return _Estimated(of_batch(best.batch, self.base, framework), best)


def _change_of_time(base: Estimate, found: Estimate) -> str:
    if found.batch == base.batch:
        subject = "A step" if base.options.train else "A pass"
        durations = f"{units.duration(base.seconds)} to {units.duration(found.seconds)}"
        return f"{subject} changes from {durations} ({_by_estimate(found)})."
    before, after = (units.rate(each.samples_per_second, "samples") for each in (base, found))
    batches = f"with batches of {found.batch} instead of {base.batch}"
    return f"The throughput changes from {before} to {after} {batches} ({_by_estimate(found)})."


def _by_estimate(found: Estimate) -> str:
    low, high = found.band
    return f"estimate, within a factor of {low:.2f} to {high:.2f}"
