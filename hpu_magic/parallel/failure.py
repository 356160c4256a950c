"""A single error for a cell that failed on one or more ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpu_magic.errors import HPUError, failed_to_write
from hpu_magic.parallel.output import named

_COLORS = re.compile(r"\x1b\[[\d;]*m")
# Python appends the cell's file name to the message of a SyntaxError.
_IN_CELL = re.compile(r"\((?:\d+\.py|<ipython-input-[^>]*>), (line \d+)\)$")


@dataclass(frozen=True)
class RankFailure:
    """The failure of one rank."""

    name: str  # name of the exception; empty if the process ended
    message: str  # message of the exception, or how the process ended
    traceback: str  # IPython's traceback on that rank

    @property
    def sentence(self) -> str:
        """A description of the failure that can be appended to the rank's name."""
        if not self.name:
            return self.message
        # The complete message is in the traceback, which is printed above this sentence.
        lines = (line.strip() for line in _COLORS.sub("", self.message).splitlines())
        first = _IN_CELL.sub(r"(\1 of the cell)", next(filter(None, lines), ""))
        if failed_to_write(first):
            first = f"{first} (PyTorch cannot write a file; its disk may be full)"
        return f"raised {self.name}: {first}" if first else f"raised {self.name}"


class RanksFailedError(HPUError):
    """Some ranks did not complete the cell, but they may have run part of it.

    Attributes
    ----------
    failures : dict of int to RankFailure
        The failures by rank, in chronological order.
    interrupted : list of int
        Ranks that were interrupted because of the failures.
    """

    def __init__(
        self,
        failures: Mapping[int, RankFailure],
        interrupted: Sequence[int] = (),
        advice: Sequence[str] = (),
    ) -> None:
        # A process that ended is probably the cause of the other failures, so it is listed first.
        self.failures = dict(sorted(failures.items(), key=lambda item: bool(item[1].name)))
        self.interrupted = list(interrupted)
        super().__init__(" ".join([*self._sentences(), *advice]))

    def _sentences(self) -> list[str]:
        first = next(iter(self.failures.values())).sentence
        groups: dict[str, list[int]] = {}
        for rank, failure in self.failures.items():
            after = f"raised {failure.name} after that" if failure.name else failure.sentence
            sentence = first if failure.sentence == first else after
            groups.setdefault(sentence, []).append(rank)
        if self.interrupted:
            were = "was" if len(self.interrupted) == 1 else "were"
            groups[f"{were} interrupted"] = self.interrupted
        return [
            f"{named(sorted(ranks)).capitalize()} {sentence.rstrip('.')}."
            for sentence, ranks in groups.items()
        ]

    def _render_traceback_(self) -> list[str]:
        """Return the first failure's traceback and this error's message, not Python's traceback."""
        first = next(iter(self.failures.values()))
        lines = first.traceback.splitlines()
        return [*lines, *([""] if lines else []), str(self)]


class RanksInterrupt(KeyboardInterrupt):
    """Raised on Ctrl-C, after the ranks have been interrupted."""

    def _render_traceback_(self) -> list[str]:
        """Return only the message, because the traceback would just show the waiting notebook."""
        return [str(self)]
