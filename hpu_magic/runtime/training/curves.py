"""Store the metrics that a fit logs: their latest values, and whether they have charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpu_magic.runtime.training.metric_names import goal_of

LOSS = "loss"
"""The name of the chart for the loss that a training step returns."""

MOST_FOLLOWED = 64
MOST_CHARTS = 6
_MOST_REQUESTED = 12
_MOST_IN_ONE = 6
_SAME = 1e-5  # division followed by multiplication may change the last bits


class Point(NamedTuple):
    """A logged value of a metric, with its time, step and epoch."""

    moment: float
    value: float
    step: int
    epoch: int


@dataclass(eq=False)
class Curve:
    """The values of one logged metric."""

    name: str  # the metric's full name, as on Lightning's progress bar
    metric: str  # the curve's chart: the metric name without the stage
    stage: str  # ``training`` or ``validation``
    every: str  # ``step``, or ``epoch`` for one value per epoch
    on_bar: bool = True  # whether the metric was logged with ``prog_bar=True``
    goal: str | None = None  # ``min`` or ``max``, if known
    returned: bool = False  # whether the curve is the loss that the training step returned
    copies: bool | None = None
    """Whether all values so far were equal to the returned loss; None before the first value."""
    last: Point | None = None
    series: str = ""

    def __post_init__(self) -> None:
        self.series = "train" if self.returned else f"logged {self.stage} {self.name}"


@dataclass
class Curves:
    """All metrics of a fit.

    The training thread adds curves, another thread may request a chart, and a third thread draws
    them. Each change is a single atomic list or dict operation, so no lock is needed.
    """

    goals: dict[str, str] = field(default_factory=dict)
    """``min`` or ``max`` by name, taken from the callbacks of the fit."""
    unfollowed: set[str] = field(default_factory=set)  # names of curves that exceed the limit
    _all: list[Curve] = field(default_factory=list)
    _drawn: list[str] = field(default_factory=list)

    def follow(
        self,
        name: str,
        metric: str,
        stage: str,
        every: str,
        *,
        on_bar: bool = True,
        returned: bool = False,
    ) -> Curve | None:
        """Add a curve, with a chart if it is on the progress bar; return None beyond the limit."""
        if len(self._all) >= MOST_FOLLOWED:
            self.unfollowed.add(name)
            return None
        goal = self.goals.get(name) or goal_of(name)
        if not returned and any(each.name == name for each in self._all if not each.returned):
            name = f"{name} ({stage})"
        curve = Curve(name, metric, stage, every, on_bar, goal, returned)
        self._all.append(curve)
        if on_bar and metric not in self._drawn and len(self._drawn) < MOST_CHARTS:
            # The chart of the returned loss is always the first one.
            self._drawn.insert(0 if returned else len(self._drawn), metric)
        return curve

    def add_chart(self, metric: str) -> None:
        """Add the chart of a metric unless the limit has been reached."""
        if metric in self.addable:
            self._drawn.append(metric)

    def __iter__(self) -> Iterator[Curve]:
        return iter([curve for curve in self._all if not curve.copies])

    @property
    def with_copies(self) -> list[Curve]:
        """All curves, including those that are copies of the returned loss."""
        return list(self._all)

    @property
    def drawn(self) -> list[str]:
        """The metrics that have a chart, from top to bottom."""
        return list(self._drawn)

    @property
    def addable(self) -> list[str]:
        """The metrics for which a chart can be added."""
        if len(self._drawn) >= _MOST_REQUESTED:
            return []
        return [metric for metric in self.metrics if metric not in self._drawn]

    @property
    def metrics(self) -> list[str]:
        """All metrics."""
        return list(dict.fromkeys(curve.metric for curve in self))

    def of(self, metric: str) -> list[Curve]:
        """Return the curves of one chart, training first, up to a limit."""
        curves = [curve for curve in self if curve.metric == metric]
        by_stage = sorted(curves, key=lambda curve: (curve.stage, curve.every == "epoch"))
        return by_stage[:_MOST_IN_ONE]

    def compare(self, loss: Curve, value: float, others: Mapping[Curve, float]) -> None:
        """Record which curves are copies of the returned loss, and name the loss after them."""
        for curve, other in others.items():
            if curve is loss or curve.copies is False:
                continue
            if curve.metric != loss.metric or (curve.stage, curve.every) != ("training", "step"):
                continue
            both_nan = math.isnan(value) and math.isnan(other)
            curve.copies = both_nan or other == value or math.isclose(other, value, rel_tol=_SAME)
            if curve.copies and loss.name == LOSS:
                loss.name = curve.name

    @property
    def first(self) -> Curve | None:
        """The main curve of the fit: the returned loss, or the first curve with a chart."""
        return next((curve for metric in self._drawn for curve in self.of(metric)), None)

    @property
    def shown(self) -> list[Curve]:
        """The curves to show in a headline: those on the progress bar or with a chart."""
        return [
            curve
            for curve in self
            if curve.last is not None and (curve.on_bar or curve.metric in self._drawn)
        ]
