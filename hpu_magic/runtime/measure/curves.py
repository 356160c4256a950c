"""The metrics that a fit logs: which are drawn, what each is now and was at best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpu_magic.runtime.measure.metric_names import goal_of

LOSS = "loss"
"""What the chart of the loss that a training step returns is called."""

MOST_FOLLOWED = 64
MOST_CHARTS = 6
_MOST_ASKED_FOR = 12
_MOST_IN_ONE = 6
_SAME = 1e-5  # what was divided and multiplied again may differ in the last bits


class Point(NamedTuple):
    """A value of a metric: when it was seen, which it was, and after how many steps."""

    moment: float
    value: float
    step: int
    epoch: int


@dataclass(eq=False)
class Curve:
    """Values of one metric as it was logged in one place.

    Attributes
    ----------
    name : str
        What it is called where it is named alone: as on Lightning's progress bar.
    metric : str
        The chart that it belongs in: its name without the word for its stage.
    stage : str
        ``training`` or ``validation``.
    every : str
        ``step`` or ``epoch``: what there is one value for.
    on_bar : bool
        Whether it was logged with ``prog_bar=True``.
    goal : str or None
        ``min`` or ``max``, where it is known which is best.
    returned : bool
        Whether it is the loss that the training step returned.
    copies : bool or None
        Whether all values so far were those of the returned loss; None before the first.
    """

    name: str
    metric: str
    stage: str
    every: str
    on_bar: bool = True
    goal: str | None = None
    returned: bool = False
    copies: bool | None = None
    last: Point | None = None
    series: str = ""

    def __post_init__(self) -> None:
        self.series = "train" if self.returned else f"logged {self.stage} {self.name}"


@dataclass
class Curves:
    """All metrics of a fit.

    The training thread adds to it, another one may ask for a chart, and one more draws: each
    change is a single step of a list or dict, so that no lock is needed.

    Attributes
    ----------
    goals : dict of str to str
        ``min`` or ``max`` by name, where a callback of the fit says which is best.
    unfollowed : set of str
        Names that were logged after as many as are followed.
    """

    goals: dict[str, str] = field(default_factory=dict)
    unfollowed: set[str] = field(default_factory=set)
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
        """Begin a curve and, for what is on the bar, its chart; None where there are too many."""
        if len(self._all) >= MOST_FOLLOWED:
            self.unfollowed.add(name)
            return None
        goal = self.goals.get(name) or goal_of(name)
        if not returned and any(one.name == name for one in self._all if not one.returned):
            name = f"{name} ({stage})"
        curve = Curve(name, metric, stage, every, on_bar, goal, returned)
        self._all.append(curve)
        if on_bar and metric not in self._drawn and len(self._drawn) < MOST_CHARTS:
            # The returned loss comes first whatever was logged before it.
            self._drawn.insert(0 if returned else len(self._drawn), metric)
        return curve

    def ask_for(self, metric: str) -> None:
        """Draw the chart of a metric, until there are a dozen."""
        if metric in self.addable:
            self._drawn.append(metric)

    def __iter__(self) -> Iterator[Curve]:
        return iter([one for one in self._all if not one.copies])

    @property
    def with_copies(self) -> list[Curve]:
        """All curves, those too that are the returned loss once more."""
        return list(self._all)

    @property
    def drawn(self) -> list[str]:
        """Metrics that have a chart, from top to bottom."""
        return list(self._drawn)

    @property
    def addable(self) -> list[str]:
        """Metrics that could have a chart as well."""
        if len(self._drawn) >= _MOST_ASKED_FOR:
            return []
        return [metric for metric in self.metrics if metric not in self._drawn]

    @property
    def metrics(self) -> list[str]:
        """All metrics."""
        return list(dict.fromkeys(one.metric for one in self))

    def of(self, metric: str) -> list[Curve]:
        """Return the curves of one chart: those of training first, at most six."""
        curves = [one for one in self if one.metric == metric]
        return sorted(curves, key=lambda one: (one.stage, one.every == "epoch"))[:_MOST_IN_ONE]

    def compare(self, loss: Curve, value: float, others: Mapping[Curve, float]) -> None:
        """Note which curves are the returned loss once more, under the name that they give it."""
        for curve, its in others.items():
            if curve is loss or curve.copies is False:
                continue
            if curve.metric != loss.metric or (curve.stage, curve.every) != ("training", "step"):
                continue
            both_nan = math.isnan(value) and math.isnan(its)
            curve.copies = both_nan or its == value or math.isclose(its, value, rel_tol=_SAME)
            if curve.copies and loss.name == LOSS:
                loss.name = curve.name

    @property
    def first(self) -> Curve | None:
        """The one that stands for the fit: the returned loss, else the first that has a chart."""
        return next((one for metric in self._drawn for one in self.of(metric)), None)

    @property
    def shown(self) -> list[Curve]:
        """Return what a headline tells the values of: what is on the bar or was asked for."""
        return [
            one
            for one in self
            if one.last is not None and (one.on_bar or one.metric in self._drawn)
        ]
