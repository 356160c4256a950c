"""Estimate the time on a card with the clock of the simulated card, if the clock is on."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpu_magic import backend, units


@dataclass(frozen=True)
class CardTime:
    """An estimate of the time that work takes on a card."""

    seconds: float
    band: tuple[float, float]
    """Range in which a measurement is expected, in multiples of `seconds`."""
    compilation: float = 0.0  # time to compile graphs, which is not part of `seconds`
    idle: float = 0.0  # part of `seconds` in which the card waited for the host
    busy: dict[str, float] = field(default_factory=dict)  # seconds of work of each part of the card

    def text(self, per: str = "") -> str:
        """Return the time with its band, for example ``2.00 ms per step (estimate: 1 to 4 ms)``."""
        low, high = (units.duration(self.seconds * factor) for factor in self.band)
        text = f"{units.duration(self.seconds)}{per and f' per {per}'} (estimate: {low} to {high})"
        if self.compilation:
            text += f", after compiling graphs in {units.duration(self.compilation)}"
        return text

    def use(self) -> str:
        """Return how much of the time each part of the card was busy and the card waited."""
        if not self.seconds:
            return ""
        parts = sorted(self.busy.items(), key=lambda part: -part[1])
        times = {name: seconds for name, seconds in parts if seconds}
        times["waiting for the host"] = self.idle
        return ", ".join(f"{name} {seconds / self.seconds:.0%}" for name, seconds in times.items())


class CardWatch:
    """Measures the card time of consecutive periods."""

    def __init__(self) -> None:
        self._before = backend.card_time()

    def lap(self) -> CardTime | None:
        """Return the card time since the last call, or None if the clock was off during that time.

        The card time ends when the card has completed all work that was launched until this call.
        """
        before, now = self._before, backend.card_time()
        self._before = now
        if before is None or now is None or now.end < before.end:
            return None
        busy = {name: seconds - before.busy[name] for name, seconds in now.busy.items()}
        return CardTime(
            now.end - before.end,
            now.band,
            now.compilation - before.compilation,
            now.idle - before.idle,
            busy,
        )


class CardPace:
    """Measures the card time per step, without periods in which the clock was off."""

    def __init__(self) -> None:
        self._watch = CardWatch()
        self._seconds = 0.0
        self._steps = 0
        self.step: CardTime | None = None  #: card time per step; None if it is unknown

    def begin(self) -> None:
        """Begin a period."""
        self._watch.lap()

    def add(self, steps: int) -> None:
        """End a period of ``steps`` steps, and begin the next period."""
        if (lap := self._watch.lap()) is None:
            return
        self._seconds += lap.seconds
        self._steps += steps
        if self._steps:
            self.step = CardTime(self._seconds / self._steps, lap.band)
