"""The result of a fit, with a table for users and attributes for code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpu_magic import notebook, units
from hpu_magic.runtime.measure.card_time import CardTime
from hpu_magic.runtime.present.drawing import spoken
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.training.not_finite import NotFinite
from hpu_magic.runtime.training.observation import Observation

if TYPE_CHECKING:
    from hpu_magic.advice.report import Advice


_METRICS_SHOWN = 12
_SHARE_SHOWN = 0.1  # the time spent waiting for batches is shown if it exceeds this share


@dataclass(repr=False)
class FitResult(Report):
    """The result of a fit.

    Attributes
    ----------
    outcome : str
        ``finished``, ``stopped`` (by Stop), ``interrupted``, ``failed``, or ``left`` if the body
        exited the loop early.
    where : str
        Position of the last batch, such as ``epoch 3 of 10, batch 40 of 57``.
    device : str
        Name of the device, such as ``HPU 0 (simulated GAUDI2)``.
    steps : int
        Number of optimizer steps.
    seconds : float
        Time from the call to ``fit`` until its end, in seconds.
    steps_per_second, batches_per_second : float or None
        Training speed, excluding validation.
    card_step : CardTime or None
        Estimated time of a step on a card, excluding validation; None if the clock of the simulated
        card is off.
    peak, limit : int or None
        Peak memory usage and memory limit in bytes; None if no card was used.
    metrics : dict of str to float
        The last values logged by the model.
    trained : str
        Amount of training, such as ``3 epochs``.
    batches : int
        Number of training batches; larger than `steps` if gradients are accumulated.
    not_finite : list of NotFinite
        Curves that became NaN or infinite, and the step at which this happened.
    error : str or None
        The error, if the fit failed.
    ended_by : str or None
        Why a finished fit ended early, for example
        ``EarlyStopping: val_loss did not improve in 3 checks``.
    picture : str
        The curves as an SVG image.
    kind : str
        The first word of the headline: ``Fit`` or ``Loop``.
    observed : Observation or None
        Compilations, operators that ran on the CPU, settings, and time spent waiting for batches.
    """

    outcome: str
    where: str
    device: str
    steps: int
    seconds: float
    steps_per_second: float | None = None
    peak: int | None = None
    limit: int | None = None
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
    card_step: CardTime | None = None
    _shown_by_cell: int | None = None

    @property
    def stopped_early(self) -> bool:
        """Whether the fit was ended by Stop."""
        return self.outcome == "stopped"

    def advice(self, model: Any = None, inputs: Any = (), **arguments: Any) -> Advice:
        """List the causes of lost time in this fit, starting with the most expensive one.

        If you pass a model and its inputs, the list also contains the estimated gains of a
        different precision, batch size or mode, and of fused operators. `arguments` are the
        arguments of `hpu_magic.advise`; an unknown argument raises HPUError.
        """
        from hpu_magic.advice.advise import advise_on_fit

        positional = inputs if isinstance(inputs, list | tuple) else (inputs,)
        return advise_on_fit(self.observed, self._subject, model, *positional, **arguments)

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
        lasting = [noted for noted in self.not_finite if noted.lasting] or self.not_finite
        if not lasting:
            return title
        others = len({noted.curve for noted in lasting} - {lasting[0].curve})
        more = f" and {others} more that {'is' if others == 1 else 'are'} not finite"
        return f"{title}, but with {lasting[0].brief}{more if others else ''}"

    def rows(self) -> Sequence[Row]:
        """Return the rows of the table."""
        steps = f"{self.steps:,}"
        if self.batches != self.steps:
            steps += f" ({self.batches:,} batches)"
        rows = [("steps", f"{steps} in {units.duration(self.seconds)}")]
        if self.steps_per_second is not None:
            pace = units.rate(self.steps_per_second)
            if self.batches != self.steps and self.batches_per_second is not None:
                pace += f" ({units.rate(self.batches_per_second, 'batches')})"
            rows.append(("pace", pace))
        if self.card_step is not None:
            rows.append(("card time", self.card_step.text("step")))
        rows += [(noted.curve, noted.full) for noted in self.not_finite[:_METRICS_SHOWN]]
        observed = self.observed
        if observed and observed.waited_share and observed.waited_share >= _SHARE_SHOWN:
            share = f"{observed.waited_share:.0%} of the training time"
            rows.append(("waiting for batches", share))
        if self.peak is not None:
            limit = f" of {units.size(self.limit)}" if self.limit else ""
            rows.append(("peak memory", units.size(self.peak) + limit))
        listed = {noted.curve for noted in self.not_finite[:_METRICS_SHOWN]}
        shown = list(self.metrics.items())[:_METRICS_SHOWN]
        return rows + [
            (name, units.value(value))
            for name, value in shown
            if math.isfinite(value) or name not in listed
        ]

    def notes(self) -> Sequence[str]:
        """Return why the fit ended early, and the number of metrics that the table omits."""
        notes = [f"The error was {self.error}"] if self.error else []
        if self.ended_by:
            notes.append(f"Ended in {self.where} by {self.ended_by}.")
        hidden = len(self.metrics) - _METRICS_SHOWN
        if hidden > 0:
            notes.append(f"The `metrics` attribute contains {hidden} more.")
        return notes

    def bundles(self) -> list[dict[str, str]]:
        """Return the MIME bundles of the table and, if there is one, of the image."""
        table = {"text/html": self._repr_html_(), "text/plain": repr(self)}
        if not self.picture:
            return [table]
        return [table, {"image/svg+xml": self.picture, "text/plain": spoken(self.picture)}]

    def note_shown(self) -> None:
        """Record that the running cell has already shown the result."""
        self._shown_by_cell = notebook.running_cell()

    def _ipython_display_(self) -> None:
        """Show the result, unless the panel in the same cell already shows it."""
        from IPython.display import display

        if self._shown_by_cell is not None and self._shown_by_cell == notebook.running_cell():
            if not _has_kernel():
                # In a terminal, the output prompt has already been printed, so print something.
                print(f"FitResult, {self.outcome}: the values above are available as attributes.")
            return
        for bundle in self.bundles():
            display(bundle, raw=True)


def _has_kernel() -> bool:
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")
