"""Find the curves of a fit that became NaN or infinite, and the steps at which this happened."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_NOTED = 64
_NOTED_OF_ONE = 5  # a curve that changes often must leave room for others


@dataclass
class NotFinite:
    """A curve whose values became NaN or infinite."""

    curve: str  # name of the metric; ``loss`` for the loss that a training step returned
    value: str  # ``NaN``, ``inf`` or ``-inf``
    step: int  # the first optimizer step at which the value was observed
    place: str  # the epoch and batch of the step
    finite_at: int | None
    """The last step at which a finite value was observed, if steps in between were not observed;
    None if `step` is exact."""
    moment: float  # time of the observation, in seconds of ``time.monotonic()``
    lasting: bool = True  # False once the values have become finite again
    metric: str = ""  # the chart of the curve

    @property
    def when(self) -> str:
        """The value and when it occurred, for example ``NaN since step 31``."""
        late = " at the latest" if self.lasting and self.finite_at is not None else ""
        return f"{self.value} {'since' if self.lasting else 'at'} step {self.step}{late}"

    @property
    def brief(self) -> str:
        """The curve and `when`, for example ``loss NaN since step 31``."""
        return f"{self.curve} {self.when}"

    @property
    def full(self) -> str:
        """Like `when`, but with the place and the last step that had a finite value."""
        last = f", finite at step {self.finite_at}" if self.finite_at is not None else ""
        return f"{self.when} ({self.place}{last})"


@dataclass
class ValueWatch:
    """Records when a curve becomes NaN or infinite; must be used from a single thread."""

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
        """Check a value; ``index`` is its position in the curve, including unchecked values."""
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
            first = NotFinite(curve, kind, step, place, finite_at, moment, metric=metric)
            self._now[curve] = first
            self.noted.append(first)

    def _has_room(self, curve: str) -> bool:
        of_this = sum(noted.curve == curve for noted in self.noted)
        return of_this < _NOTED_OF_ONE and len(self.noted) < _NOTED
