"""The progress of a fit, written by the training thread and read by the drawing thread."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from hpu_magic.runtime.measure.card_time import CardTime
from hpu_magic.runtime.training.curves import Curves
from hpu_magic.runtime.training.not_finite import NotFinite, ValueWatch
from hpu_magic.runtime.training.observation import Observer

_NOTICED_SECONDS = 0.7


@dataclass
class FitProgress:
    """The state of one fit.

    Only the training thread writes the attributes, so no lock is needed. Times are in seconds of
    ``time.monotonic()``.
    """

    phase: str = "starting"
    """``starting``, ``training``, ``validating``, ``finished``, ``stopped``, ``interrupted``
    or ``failed``."""

    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    epoch: int = 0
    epochs: int | None = None
    batch: int = 0
    batches: int | None = None
    validation_batch: int | None = None
    validation_began: float | None = None
    steps: int = 0
    """Number of optimizer steps in this fit."""

    trained: int = 0
    """Number of training batches in this fit."""

    planned_epochs: int | None = None
    """Number of epochs planned for this fit, excluding earlier epochs that count towards `epochs`;
    None if unknown."""

    planned_steps: int | None = None
    planned_batches: int | None = None
    deadline: float | None = None
    """Time at which ``max_time`` will end the fit."""

    epoch_over: bool = False
    """Whether the current epoch is complete."""

    epochs_done: int = 0
    """Number of completed epochs in this fit."""

    batches_over: int = 0
    """Number of batches that belong to incomplete epochs."""

    curves: Curves = field(default_factory=Curves)
    """The logged metrics, including the returned loss."""

    watch: ValueWatch = field(default_factory=ValueWatch)
    observer: Observer = field(default_factory=Observer)
    stopping: bool = False
    training_began: float | None = None
    training_seconds: float = 0.0
    card_step: CardTime | None = None
    """Estimated time of a step on a card, without validation; None if the clock of the simulated
    card is off."""
    error: str | None = None
    ended_by: str | None = None
    """Reason why the fit ended earlier than planned, such as early stopping."""

    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether the fit has ended for any reason."""
        return self.ended is not None

    @property
    def seconds(self) -> float:
        """Duration of the fit so far, in seconds."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def not_finite(self) -> list[NotFinite]:
        """Curves that became NaN or infinite, in chronological order."""
        return self.watch.noted

    @property
    def steps_per_second(self) -> float | None:
        """Optimizer steps per second, without validation; None before the first step."""
        return self._per_second(self.steps)

    @property
    def batches_per_second(self) -> float | None:
        """Training batches per second, without validation; None before the first batch."""
        return self._per_second(self.trained)

    def _per_second(self, count: int) -> float | None:
        return count / self.training_seconds if count and self.training_seconds > 0 else None

    @property
    def share(self) -> float | None:
        """Completed fraction of the planned work, from 0 to 1; None if the end is unknown."""
        plans: list[tuple[float, float | None]] = [
            (self.trained, self.planned_batches),
            (self.steps, self.planned_steps),
        ]
        if self.deadline is not None and self.training_began is not None:
            plans.append((self._trained_for, self.deadline - self.training_began))
        shares = [min(1.0, done / planned) for done, planned in plans if planned and planned > 0]
        return max(shares, default=None)

    @property
    def endless(self) -> bool:
        """Whether the fit is training with an unknown number of steps."""
        return self.training_began is not None and not self.over and self.share is None

    @property
    def _trained_for(self) -> float:
        """Time since training began in seconds, including validation."""
        return (self.ended or time.monotonic()) - (self.training_began or 0.0)

    @property
    def remaining(self) -> float | None:
        """Estimated time until the planned end in seconds; None if unknown."""
        if self.over or not self.share or self.training_began is None:
            return None
        return self._trained_for * (1 / self.share - 1)

    @property
    def long_validation(self) -> bool:
        """Whether a validation is running that has taken long enough to be shown."""
        began = self.validation_began
        return began is not None and time.monotonic() - began > _NOTICED_SECONDS

    def where(self, *, short_validations: bool = True) -> str:
        """Return the current position in the fit, for example ``epoch 3 of 10, batch 40 of 57``.

        Without ``short_validations``, only long validations are included.
        """
        validating = ""
        if self.validation_batch and (short_validations or self.long_validation):
            validating = f"validation batch {self.validation_batch}"
        nothing_done = self.over and not self.trained and not self.batch
        if self.training_began is None or (nothing_done and not validating):
            return validating or "before the first batch"
        epoch = f"epoch {self.epoch + 1}" + (f" of {self.epochs}" if self.epochs else "")
        if validating:
            return f"{epoch}, {validating}"
        batch = f"batch {self.batch}" + (f" of {self.batches}" if self.batches else "")
        return f"{epoch}, {batch}"

    def done(self) -> str:
        """Return the completed work, for example ``2 epochs and 3 batches``; it may be empty.

        If fewer epochs were run than planned, the text is ``2 of 9 epochs``.
        """
        epochs, batches = self.epochs_done, self.batches_over
        planned = max(epochs, self.planned_epochs or 0)
        parts = []
        if epochs:
            share = f"{epochs:,}" if epochs == planned else f"{epochs:,} of {planned:,}"
            parts.append(f"{share} {'epoch' if planned == 1 else 'epochs'}")
        if batches:
            parts.append(f"{batches:,} {'batch' if batches == 1 else 'batches'}")
        return " and ".join(parts)

    def end(self, phase: str, error: str | None = None, moment: float | None = None) -> None:
        """Set the final phase and the end time, which is ``moment`` or the current time."""
        self.phase = phase
        self.validation_began = None
        self.error = error
        self.ended = time.monotonic() if moment is None else moment
