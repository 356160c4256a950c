"""Values of a fit that stopped being numbers: what became NaN or infinite, and at which step."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_NOTED = 64
_NOTED_OF_ONE = 5  # so that one that comes and goes leaves room for others


@dataclass
class NotFinite:
    """A curve that left the finite numbers.

    Attributes
    ----------
    curve : str
        What the model called it; ``loss`` is what a training step returned.
    value : str
        ``NaN``, ``inf`` or ``-inf``.
    step : int
        The first optimizer step at which it was seen.
    place : str
        The same as epoch and batch.
    finite_at : int or None
        The last step before it at which the value was seen to be finite, when there were steps
        in between that nobody looked at; None where `step` is exact.
    moment : float
        When it was seen, in seconds of ``time.monotonic()``.
    lasting : bool
        Whether it stayed so.
    metric : str
        The chart that it is drawn in.
    """

    curve: str
    value: str
    step: int
    place: str
    finite_at: int | None
    moment: float
    lasting: bool = True
    metric: str = ""

    @property
    def when(self) -> str:
        """For example ``NaN since step 31``."""
        late = " at the latest" if self.lasting and self.finite_at is not None else ""
        return f"{self.value} {'since' if self.lasting else 'at'} step {self.step}{late}"

    @property
    def brief(self) -> str:
        """For example ``loss NaN since step 31``."""
        return f"{self.curve} {self.when}"

    @property
    def full(self) -> str:
        """The same without the curve's name, with the place and where it was finite last."""
        last = f", finite at step {self.finite_at}" if self.finite_at is not None else ""
        return f"{self.when} ({self.place}{last})"


@dataclass
class Watch:
    """Notes for each curve when it leaves the finite numbers; for one thread."""

    noted: list[NotFinite] = field(default_factory=list)
    _now: dict[str, NotFinite | None] = field(default_factory=dict)
    _finite: dict[str, tuple[int, int]] = field(default_factory=dict)

    def see(
        self,
        curve: str,
        value: float,
        *,
        index: int,
        step: int,
        place: str,
        moment: float,
        metric: str = "",
    ) -> None:
        """Look at one value.

        Parameters
        ----------
        curve : str
            What it is a value of.
        value : float
            The value.
        index : int
            Counts the values of the curve, those too that nobody looks at.
        step, place, moment, metric
            As in `NotFinite`.
        """
        noted = self._now.get(curve)
        if math.isfinite(value):
            self._finite[curve] = (index, step)
            if noted is not None:
                noted.lasting = False
                self._now[curve] = None
        elif noted is None and self._has_room(curve):
            last, finite_step = self._finite.get(curve, (0, 0))
            kind = "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
            finite_at = finite_step if index > last + 1 else None
            found = NotFinite(curve, kind, step, place, finite_at, moment, metric=metric)
            self._now[curve] = found
            self.noted.append(found)

    def _has_room(self, curve: str) -> bool:
        of_this = sum(one.curve == curve for one in self.noted)
        return of_this < _NOTED_OF_ONE and len(self.noted) < _NOTED
