"""Graph breaks of ``torch.compile``, from PyTorch's own record of them.

The record has two parts, neither complete. ``graph_break_reasons`` lists breaks with their stack,
until ``torch._dynamo.reset()`` empties it. ``counters`` count by reason, without a place; they
lack branches on a tensor's value, but know of functions that were given up as a whole.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\](torch|lightning\w*|pytorch_lightning)[/\\]")
_GIVEN_UP = re.compile(r"frame skipped: .* \((?P<file>.+) line (?P<line>\d+)\)")
# PyTorch's name of an instruction, where the counters say what it means.
_BRANCH = "generic_jump"


class GraphBreak(NamedTuple):
    """A place at which a compiled function returned to Python.

    Attributes
    ----------
    reason : str
        What PyTorch says of it, the first line.
    file : str
        File of the user's line; empty where PyTorch does not tell.
    line : int
        Number of the line.
    """

    reason: str
    file: str = ""
    line: int = 0


@dataclass
class Record:
    """PyTorch's record at one moment; see `since`."""

    listed: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)

    @classmethod
    def now(cls) -> Record:
        """Return the record as it is; empty as long as nothing has been compiled."""
        utils = sys.modules.get("torch._dynamo.utils")
        counters = getattr(utils, "counters", {})
        failed = counters.get("unimplemented", {})
        return cls(
            len(getattr(utils, "graph_break_reasons", ())),
            Counter(counters.get("graph_break", {})),
            Counter({text: count for text, count in failed.items() if _GIVEN_UP.search(text)}),
        )


def since(before: Record) -> list[GraphBreak]:
    """Return the graph breaks since `before`, each as often as it happened."""
    after = Record.now()
    utils = sys.modules.get("torch._dynamo.utils")
    reasons = list(getattr(utils, "graph_break_reasons", ()))
    # Shorter: reset in between.
    new = reasons[before.listed :] if after.listed >= before.listed else reasons
    breaks = [_listed(one) for one in new]
    unlisted = _growth(before.counted, after.counted) - Counter(str(one.reason) for one in new)
    breaks += [GraphBreak(_first_line(text)) for text in unlisted.elements()]
    skipped = _growth(before.given_up, after.given_up)
    return breaks + [_skipped(text) for text in skipped.elements()]


def _growth(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Return what was counted in between; a count that has shrunk was cleared and began anew."""
    return Counter(
        {
            text: count - before[text] if count >= before[text] else count
            for text, count in after.items()
        }
    )


def _listed(reason: Any) -> GraphBreak:
    text = _first_line(str(reason.reason))
    if text.startswith(_BRANCH):
        text = "Data-dependent branching"
    file, line = _users_line(getattr(reason, "user_stack", None) or ())
    return GraphBreak(text, file, line)


def _skipped(text: str) -> GraphBreak:
    found = _GIVEN_UP.search(text)
    assert found is not None
    return GraphBreak(f"{_first_line(text)}; not compiled", found["file"], int(found["line"]))


def _users_line(stack: Sequence[Any]) -> tuple[str, int]:
    """Return file and line of the innermost frame outside PyTorch and its relatives."""
    own = [frame for frame in stack if not _LIBRARY.search(frame.filename)] or list(stack)
    return (own[-1].filename, own[-1].lineno or 0) if own else ("", 0)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
