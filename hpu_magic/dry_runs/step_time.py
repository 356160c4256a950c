"""The estimated time of a step, its parts, and the samples that it processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.estimates import figures
from hpu_magic.estimates.by_module import ModuleShare, shares
from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.runtime.present.report import Row

PHASES = (
    *("data", "forward", "backward", "optimizer", "fallbacks"),
    *("exchange", "other ranks", "other"),
)
_OUTSIDE = "code outside modules"
_LEAST = 0.005  # phases with a smaller share are not shown
_LIMITS_SHOWN = 3
_WAITS = 0.05  # share of the time on this machine


@dataclass(frozen=True)
class Data:
    """The data of a step.

    Attributes
    ----------
    samples, tokens : float
        Number of samples and tokens per step on one rank, including padding.
    source : str
        How samples were counted.
    ranks : int
        Number of ranks that process different samples.
    ranks_are_known : bool
        Whether the script's sampler states this number.
    batches : float
        Number of batches per step that loaders returned.
    waited : float
        Seconds per step that the script waited for batches on this machine.
    loader : dict or None
        ``workers``, ``pinned``, ``persistent``, ``length`` (batches per epoch), ``ranks`` and
        ``last`` (samples in the last batch, if it is smaller).
    """

    samples: float
    tokens: float
    source: str
    ranks: int
    ranks_are_known: bool
    batches: float
    waited: float
    loader: dict[str, Any] | None


@dataclass(frozen=True)
class StepTime:
    """The time of a step on the card: the mean of the steps that repeat, or the last step.

    Attributes
    ----------
    seconds : float
        Time of a step, or of the whole run if the script has no optimizer.
    band : (float, float)
        Range in which a measured time is expected, in multiples of the estimate.
    whole_run : bool
        Whether the script has no optimizer, so that all figures are those of the whole run.
    phases : dict
        Seconds by phase: data, forward, backward, optimizer, copies of CPU fallbacks, exchange,
        waiting for messages of other ranks, and other.
    limits : dict
        Seconds by the limiting part of the card: matrix, vector, memory, links, launches, and
        waiting for other ranks and for the host.
    modules : ModuleShare
        Time by module.
    matrix : float
        Seconds that the matrix engines were busy.
    share_of_peak : float
        Work of the matrix engines as a share of their peak rate; arrays that are partly filled
        count as full.
    in_float32 : bool
        Whether float32 matrices were multiplied.
    launches : float
        Number of operators and graphs.
    compilation : float
        Seconds for compilation in the whole run, which are not part of `seconds`.
    recompilation, recompiled : float, int
        Seconds for compilation in a step, and the number of graphs that the last step compiled.
    host_is_measured : bool
        Whether `seconds` includes the time of Python and data loading on this machine.
    here : float
        Seconds of a step of the dry run on this machine.
    unpriced : dict
        Number of runs of work whose time is not estimated and therefore counts as 0.
    sent : dict
        Bytes that a card sends to other cards, by kind of collective.
    data : Data
        The samples of a step.
    """

    seconds: float
    band: tuple[float, float]
    whole_run: bool
    phases: dict[str, float]
    limits: dict[str, float]
    modules: ModuleShare
    matrix: float
    share_of_peak: float
    in_float32: bool
    launches: float
    compilation: float
    recompilation: float
    recompiled: int
    host_is_measured: bool
    here: float
    unpriced: dict[str, int] = field(repr=False)
    sent: dict[str, float]
    data: Data

    @classmethod
    def from_record(cls, card: str, record: dict[str, Any]) -> StepTime:
        """Create the time from the record of a process."""
        classes = {"": _OUTSIDE, **record["classes"]}
        times = [(path, seconds, limit) for path, limit, seconds in record["modules"]]
        same = (
            *("seconds", "whole_run", "limits", "matrix", "in_float32", "launches"),
            *("compilation", "recompilation", "recompiled", "host_is_measured", "here", "unpriced"),
            "sent",
        )
        seconds = record["seconds"]
        efficiency = FITTED.matrix_efficiency[card.lower()]
        return cls(
            **{name: record[name] for name in same},
            band=tuple(record["band"]),
            phases={name: record["phases"][name] for name in PHASES if name in record["phases"]},
            modules=shares(classes, times, {}),
            share_of_peak=record["matrix"] * efficiency / seconds if seconds else 0.0,
            data=Data(**record["data"]),
        )

    @property
    def samples_per_second(self) -> float:
        """Samples per second on all ranks; 0 if samples could not be counted."""
        return self.data.samples * self.data.ranks / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second on all ranks; 0 if the samples do not contain tokens."""
        return self.data.tokens * self.data.ranks / self.seconds if self.seconds else 0.0

    @property
    def epoch_steps(self) -> float:
        """Number of optimizer steps in an epoch of the loader; 0 if it is unknown."""
        loader, batches = self.data.loader, self.data.batches
        length = loader["length"] if loader is not None and not self.whole_run else None
        return length / batches if length and batches else 0.0

    @property
    def waited(self) -> float:
        """Seconds per step that a card would wait for a loader as slow as on this machine.

        Workers load batches while the card runs a step. The training process itself cannot.
        """
        data = self.data
        if data.loader is None or self.whole_run:
            return 0.0
        if not data.loader["workers"]:
            return data.waited
        is_slow = data.waited > _WAITS * self.here
        return max(0.0, self.here - self.seconds) if is_slow else 0.0

    def rows(self) -> list[Row]:
        """Return the time, its parts and the throughput."""
        what = "time of the run" if self.whole_run else "time of a step"
        rows = [(what, figures.duration(self.seconds, self.band))]
        rows += [
            (f"  {name}", f"{units.duration(seconds)}, {units.share(seconds, self.seconds)}")
            for name, seconds in self.phases.items()
            if seconds >= _LEAST * self.seconds
        ]
        rows += figures.slowest(self.modules) if self.modules.seconds else []
        if self.limits:
            rows += [("limited by", self._limited_by())]
            waiting = self.limits.get("waiting", 0.0)
            share = units.share(waiting, sum(self.limits.values()))
            rows += [("waiting for the host", f"{units.duration(waiting)}, {share}")]
        rows += [("matrix engines", self._share_of_peak())]
        rows += self._traffic()
        rows += self._rates()
        if self.compilation:
            rows += figures.compilation(self.compilation)
        if self.epoch_steps:
            rows += [(f"an epoch ({self.epoch_steps:,.0f} steps)", self.duration(self.epoch_steps))]
        return rows + self._loading()

    def duration(self, steps: float) -> str:
        """Return the time of this number of steps with its band, without compilation."""
        return figures.duration(steps * self.seconds, self.band)

    def _limited_by(self) -> str:
        total = sum(self.limits.values())
        most = sorted(self.limits.items(), key=lambda item: -item[1])[:_LIMITS_SHOWN]
        return ", ".join(
            f"{name} ({units.share(seconds, total)})"
            for name, seconds in most
            if seconds >= _LEAST * total
        )

    def _share_of_peak(self) -> str:
        busy = units.share(self.matrix, self.seconds) if self.seconds else "0 %"
        return f"busy for {busy} of the time, {100 * self.share_of_peak:.2g} % of their peak rate"

    def _traffic(self) -> list[Row]:
        if not (total := sum(self.sent.values())):
            return []
        rows = [("sent to other cards", f"{units.size(round(total))} per card")]
        rows += [(f"  {kind}", units.size(round(each))) for kind, each in self.sent.items() if each]
        return rows

    def _rates(self) -> list[Row]:
        data, rows = self.data, []
        if data.samples:
            rate = figures.rate(self.samples_per_second, "samples", self.band)
            rows = [("throughput", rate)]
            if data.tokens:
                rows += [("", figures.rate(self.tokens_per_second, "tokens", self.band))]
            ranks = f" on each of {data.ranks} ranks" if data.ranks > 1 else ""
            unit = "run" if self.whole_run else "step"
            count = f"{data.samples:,.1f}".removesuffix(".0")
            rows += [("samples", f"{count} per {unit}{ranks}, from {data.source}")]
        return rows

    def _loading(self) -> list[Row]:
        loader = self.data.loader
        if loader is None or not self.data.batches:
            return []
        workers = f"{loader['workers']} worker processes" if loader["workers"] else "no workers"
        seconds = units.duration(self.data.waited / self.data.batches)
        included = "included" if self.host_is_measured else "not included"
        return [("loading a batch", f"{seconds} on this machine, {workers}; {included}")]

    def notes(self) -> list[str]:
        """Return what was assumed."""
        notes = []
        if self.data.samples and not self.data.ranks_are_known:
            notes.append(
                f"The throughput assumes that {self.data.ranks} ranks process different samples."
            )
        if self.epoch_steps and self.data.loader is not None and self.data.loader["last"]:
            notes.append(
                f"The last batch of an epoch has only {self.data.loader['last']} samples, but the "
                "time of an epoch assumes that it is full. Lazy mode and compiled code need "
                "other graphs for this batch; drop_last=True of the DataLoader avoids this."
            )
        if self.unpriced:
            count = sum(self.unpriced.values())
            notes.append(
                f"{count} runs of {', '.join(self.unpriced)} take no time in this estimate."
            )
        return notes
