"""The state of a fit, which is published to other processes and pages."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from hpu_magic import units

Phase = Literal["starting", "training", "validating", "stopping"]

_PHASES = ("starting", "training", "validating", "stopping")
_TEXTS = ("model", "loss_name", "broken")
_COUNTS = ("step", "batch")
_COUNTS_OR_NONE = ("epoch", "epochs", "batches")
_NUMBERS_OR_NONE = ("share", "remaining", "rate")
_NOT_FINITE = ("NaN", "inf", "-inf")
_LARGEST = 1 << 53


@dataclass(frozen=True)
class Fit:
    """The state of a running fit; unknown values are None."""

    model: str  # class name of the model
    began: float  # start time, as returned by ``time.time()``
    phase: Phase = "starting"
    epoch: int | None = None  # counted from 1; None before the first batch
    epochs: int | None = None
    batch: int = 0  # number of the batch in the current epoch
    batches: int | None = None
    step: int = 0  # number of completed optimizer steps
    share: float | None = None  # fraction completed, from 0 to 1
    remaining: float | None = None  # estimated seconds until the planned end
    rate: float | None = None  # optimizer steps per second
    loss_name: str = "loss"
    loss: float | None = None  # the latest value, which may be NaN or infinite
    broken: str = ""  # which value became NaN or infinite, and when
    stoppable: bool = False  # whether another process can request a stop

    def as_record(self) -> dict[str, Any]:
        """Return the state as JSON-compatible data, in which a non-finite loss is a string."""
        record = dict(vars(self))
        if self.loss is not None and not math.isfinite(self.loss):
            record["loss"] = _written(self.loss)
        return record

    @staticmethod
    def from_record(record: object) -> Fit | None:
        """Create a fit from a record of another process; return None if the record is invalid."""
        if not isinstance(record, dict) or not {"model", "began"} <= set(record):
            return None
        # A different release of hpu_magic may write different keys.
        record = {name: record.get(name, default) for name, default in _DEFAULTS.items()}
        valid = (
            record["phase"] in _PHASES
            and isinstance(record["stoppable"], bool)
            and is_number(record["began"])
            and all(isinstance(record[name], str) for name in _TEXTS)
            and all(_is_count(record[name]) for name in _COUNTS)
            and all(record[name] is None or _is_count(record[name]) for name in _COUNTS_OR_NONE)
            and all(record[name] is None or is_number(record[name]) for name in _NUMBERS_OR_NONE)
        )
        loss = record["loss"]
        if not valid or not (loss is None or is_number(loss) or loss in _NOT_FINITE):
            return None
        return Fit(**{**record, "loss": None if loss is None else float(loss)})

    def described(self) -> str:
        """Return a full summary, such as ``Net: epoch 3 of 10, 42.0 steps/s, about 40 s left``."""
        parts = [self.phase if self.phase != "training" else "", self._where(), self.broken]
        if self.rate is not None:
            parts.append(units.rate(self.rate))
        if self.loss is not None and (math.isfinite(self.loss) or not self.broken):
            parts.append(f"{self.loss_name} {_written(self.loss)}")
        if self.remaining is not None:
            parts.append(f"about {units.rough(self.remaining)} left")
        return f"{self.model}: {', '.join(filter(None, parts))}"

    def brief(self) -> str:
        """Return a short summary, such as ``42 %, 40 s left``, ``epoch 3`` or ``starting``."""
        if self.phase in ("starting", "stopping"):
            return self.phase
        if self.share is None:
            return self._where() or self.phase
        done = f"{int(100 * self.share)} %"
        return done if self.remaining is None else f"{done}, {units.rough(self.remaining)} left"

    def _where(self) -> str:
        if self.epoch is None:
            return ""
        epoch = f"epoch {self.epoch}" + (f" of {self.epochs}" if self.epochs else "")
        # If the progress is unknown, show the number of the batch.
        return epoch if self.share is not None or not self.batch else f"{epoch}, batch {self.batch}"


_DEFAULTS = {field.name: field.default for field in fields(Fit)}


def _written(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{value:.3g}" if math.isfinite(value) else "inf" if value > 0 else "-inf"


def is_number(value: object) -> bool:
    """Return whether a value from JSON is a finite number that can be converted to a float."""
    if isinstance(value, float):
        return math.isfinite(value)
    # A Python int can be arbitrarily large.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_count(value: object) -> bool:
    return isinstance(value, int) and is_number(value) and value >= 0
