"""Why a cell failed on its ranks, told once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpu_magic.parallel.output import named

_COLOURS = re.compile(r"\x1b\[[\d;]*m")
# What Python appends to the text of a SyntaxError: the file that stands for the cell.
_IN_CELL = re.compile(r"\((?:\d+\.py|<ipython-input-[^>]*>), (line \d+)\)$")


@dataclass(frozen=True)
class RankFailure:
    """How one rank failed.

    Attributes
    ----------
    name : str
        Name of the exception; empty where the process ended.
    message : str
        The exception's text, or how the process ended.
    traceback : str
        As IPython showed it on that rank.
    """

    name: str
    message: str
    traceback: str

    @property
    def sentence(self) -> str:
        """The failure as the end of a sentence about its rank."""
        if not self.name:
            return self.message
        # The whole text stands in the traceback above.
        lines = (line.strip() for line in _COLOURS.sub("", self.message).splitlines())
        first = _IN_CELL.sub(r"(\1 of the cell)", next(filter(None, lines), ""))
        return f"raised {self.name}: {first}" if first else f"raised {self.name}"


class RanksFailedError(RuntimeError):
    """Some ranks did not run the cell to its end.

    Attributes
    ----------
    failures : dict of int to RankFailure
        By rank, in the order in which they failed.
    interrupted : list of int
        Ranks that were interrupted because of that.
    """

    def __init__(
        self,
        failures: Mapping[int, RankFailure],
        interrupted: Sequence[int] = (),
        advice: Sequence[str] = (),
    ) -> None:
        # A process that ended is why the others failed, whoever was heard first.
        self.failures = dict(sorted(failures.items(), key=lambda one: bool(one[1].name)))
        self.interrupted = list(interrupted)
        super().__init__(" ".join([*self._sentences(), *advice]))

    def _sentences(self) -> list[str]:
        first = next(iter(self.failures.values())).sentence
        groups: dict[str, list[int]] = {}
        for rank, failure in self.failures.items():
            after = f"raised {failure.name} after that" if failure.name else failure.sentence
            told = first if failure.sentence == first else after
            groups.setdefault(told, []).append(rank)
        if self.interrupted:
            were = "was" if len(self.interrupted) == 1 else "were"
            groups[f"{were} interrupted"] = self.interrupted
        return [
            f"{named(sorted(ranks)).capitalize()} {told.rstrip('.')}."
            for told, ranks in groups.items()
        ]

    def _render_traceback_(self) -> list[str]:
        """Show the first failure's traceback and the sentences, in the place of Python's own."""
        first = next(iter(self.failures.values()))
        lines = first.traceback.splitlines()
        return [*lines, *([""] if lines else []), str(self)]


class RanksInterrupt(KeyboardInterrupt):
    """Ctrl-C, after it has reached the ranks."""

    def _render_traceback_(self) -> list[str]:
        """Show one sentence: the traceback would be that of the waiting."""
        return [str(self)]
