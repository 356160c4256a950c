"""What a fit came to: a table for people, numbers for code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpu_magic import units
from hpu_magic.runtime.measure.not_finite import NotFinite
from hpu_magic.runtime.measure.observation import Observation
from hpu_magic.runtime.present.drawing import spoken
from hpu_magic.runtime.present.report import Report, Row

if TYPE_CHECKING:
    from hpu_magic.advice.report import Advice


_METRICS_SHOWN = 12
_SHARE_SHOWN = 0.1  # of the training's time, above which waiting for batches is worth a line


@dataclass(repr=False)
class FitResult(Report):
    """Outcome of one fit.

    Attributes
    ----------
    outcome : str
        ``finished``, ``stopped`` (by Stop), ``interrupted``, ``failed``, or ``left``: a loop that
        was broken off from within.
    where : str
        The last batch, for example ``epoch 3 of 10, batch 40 of 57``.
    device : str
        For example ``HPU 0 (simulated GAUDI2)``.
    steps : int
        Optimizer steps.
    seconds : float
        From the call of ``fit`` to its end.
    steps_per_second, batches_per_second : float or None
        Of the training alone, validation left out.
    peak_memory, memory_limit : int or None
        Bytes; None when no card was used.
    metrics : dict of str to float
        What the model logged, as it was at the end.
    trained : str
        How much was trained, for example ``3 epochs``.
    batches : int
        Training batches; more than `steps` where gradients are accumulated.
    not_finite : list of NotFinite
        What became NaN or infinite, and at which step.
    error : str or None
        Of a failed fit.
    ended_by : str or None
        What ended a finished fit before its plan, and why, for example
        ``EarlyStopping: val_loss did not improve in 3 checks``.
    picture : str
        The curves as SVG.
    kind : str
        What a headline calls it: ``Fit`` or ``Loop``.
    observed : Observation or None
        What it showed besides its curves: how long it waited for batches, what was compiled, what
        ran on the CPU, and how it was set up.
    """

    outcome: str
    where: str
    device: str
    steps: int
    seconds: float
    steps_per_second: float | None = None
    peak_memory: int | None = None
    memory_limit: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    picture: str = ""
    trained: str = ""
    batches: int = 0
    batches_per_second: float | None = None
    not_finite: list[NotFinite] = field(default_factory=list)
    kind: str = "Fit"
    observed: Observation | None = None
    ended_by: str | None = None
    _shown_by_cell: int | None = None

    @property
    def stopped_early(self) -> bool:
        """Whether Stop ended the fit."""
        return self.outcome == "stopped"

    def advice(self, model: Any = None, *inputs: Any, **arguments: Any) -> Advice:
        """List what the fit showed that costs time, what costs most first.

        Parameters
        ----------
        model : torch.nn.Module, optional
            With it, and what it is called with, estimates say as well what precision, batch, mode
            and fused operators would gain; see `hpu_magic.advise`.
        *inputs, **arguments
            Those of `hpu_magic.advise`.

        Raises
        ------
        RefusedError
            An argument is none that there is.
        """
        from hpu_magic.advice.advise import advise_on_fit

        return advise_on_fit(self.observed, self._subject, model, *inputs, **arguments)

    @property
    def _subject(self) -> str:
        return f"a {self.kind.lower()} on {self.device}"

    def title(self) -> str:
        """Return the headline."""
        duration = units.duration(self.seconds)
        if self.outcome == "finished":
            trained = f": {self.trained}" if self.trained else ""
            early = " early" if self.ended_by else ""
            title = f"{self.kind} finished{early} on {self.device}{trained} in {duration}"
        else:
            place = self.where if self.where.startswith("before") else f"in {self.where}"
            title = f"{self.kind} {self.outcome} on {self.device} {place}"
        lasting = [one for one in self.not_finite if one.lasting] or self.not_finite
        if not lasting:
            return title
        others = len({one.curve for one in lasting} - {lasting[0].curve})
        more = f" and {others} more that is no number" if others == 1 else ""
        more = f" and {others} more that are no numbers" if others > 1 else more
        return f"{title}, but with {lasting[0].brief}{more}"

    def rows(self) -> Sequence[Row]:
        """Return the figures."""
        steps = f"{self.steps:,}"
        if self.batches != self.steps:
            steps += f" ({self.batches:,} batches)"
        rows = [("steps", f"{steps} in {units.duration(self.seconds)}")]
        if self.steps_per_second is not None:
            pace = units.rate(self.steps_per_second)
            if self.batches != self.steps and self.batches_per_second is not None:
                pace += f" ({units.rate(self.batches_per_second, 'batches')})"
            rows.append(("pace", pace))
        rows += [(one.curve, one.full) for one in self.not_finite[:_METRICS_SHOWN]]
        seen = self.observed
        if seen is not None and seen.waited_share and seen.waited_share >= _SHARE_SHOWN:
            share = f"{seen.waited_share:.0%} of the training's time"
            rows.append(("waiting for batches", share))
        if self.peak_memory is not None:
            limit = f" of {units.size(self.memory_limit)}" if self.memory_limit else ""
            rows.append(("peak memory", units.size(self.peak_memory) + limit))
        told = {one.curve for one in self.not_finite[:_METRICS_SHOWN]}
        shown = list(self.metrics.items())[:_METRICS_SHOWN]
        return rows + [
            (name, units.value(value))
            for name, value in shown
            if math.isfinite(value) or name not in told
        ]

    def notes(self) -> Sequence[str]:
        """Say how it ended, when not by itself, and which metrics are not in the table."""
        notes = [f"It ended with {self.error}"] if self.error else []
        if self.ended_by:
            notes.append(f"Ended in {self.where} by {self.ended_by}.")
        hidden = len(self.metrics) - _METRICS_SHOWN
        if hidden > 0:
            notes.append(f"{hidden} more are in its attribute `metrics`.")
        return notes

    def bundles(self) -> list[dict[str, str]]:
        """Return the MIME bundles that stay in the notebook: the table, then the picture."""
        table = {"text/html": self._repr_html_(), "text/plain": repr(self)}
        if not self.picture:
            return [table]
        return [table, {"image/svg+xml": self.picture, "text/plain": spoken(self.picture)}]

    def note_shown(self) -> None:
        """Remember that the running cell shows the result already."""
        self._shown_by_cell = running_cell()

    def _ipython_display_(self) -> None:
        """Show the result, but not a second time below the panel that shows it already."""
        from IPython.display import display

        if self._shown_by_cell is not None and self._shown_by_cell == running_cell():
            if not _has_kernel():
                # A terminal has written its prompt for the value by now.
                print(f"FitResult, {self.outcome}: the figures above are its attributes.")
            return
        for bundle in self.bundles():
            display(bundle, raw=True)


def _has_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def running_cell() -> int | None:
    """Return the number of the cell that runs, None outside of IPython."""
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "execution_count", None)
