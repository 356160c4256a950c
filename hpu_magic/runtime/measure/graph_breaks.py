"""Collect the graph breaks of ``torch.compile`` from PyTorch's records.

PyTorch keeps two records, both of which are incomplete. ``graph_break_reasons`` lists breaks with
their stacks, but ``torch._dynamo.reset()`` clears it. ``counters`` counts breaks by reason, without
their location. The counters omit data-dependent branches, but include skipped functions.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hpu_magic.runtime.measure.device_counts import growth

_LIBRARY = re.compile(r"[/\\](site|dist)-packages[/\\](torch|lightning\w*|pytorch_lightning)[/\\]")
_SKIPPED = re.compile(r"frame skipped: .* \((?P<file>.+) line (?P<line>\d+)\)")
# PyTorch's name for an instruction that the counters describe as data-dependent branching.
_BRANCH = "generic_jump"


class GraphBreak(NamedTuple):
    """A location at which a compiled function fell back to the Python interpreter."""

    reason: str  # the first line of PyTorch's explanation
    file: str = ""  # the file that contains the user's line; empty if unknown
    line: int = 0


@dataclass
class Record:
    """Snapshot of PyTorch's records; see `since`."""

    listed: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    @classmethod
    def now(cls) -> Record:
        """Return the current state, which is empty before the first compilation."""
        utils = sys.modules.get("torch._dynamo.utils")
        counters = getattr(utils, "counters", {})
        failed = counters.get("unimplemented", {})
        return cls(
            len(getattr(utils, "graph_break_reasons", ())),
            Counter(counters.get("graph_break", {})),
            Counter({text: count for text, count in failed.items() if _SKIPPED.search(text)}),
        )


def since(before: Record) -> list[GraphBreak]:
    """Return the graph breaks since `before`, including repeated ones."""
    after = Record.now()
    utils = sys.modules.get("torch._dynamo.utils")
    reasons = list(getattr(utils, "graph_break_reasons", ()))
    # If the list is shorter than before, it was reset in the meantime.
    new = reasons[before.listed :] if after.listed >= before.listed else reasons
    breaks = [_listed(each) for each in new]
    unlisted = _growth(before.counted, after.counted) - Counter(str(each.reason) for each in new)
    breaks += [GraphBreak(_first_line(text)) for text in unlisted.elements()]
    skipped = _growth(before.skipped, after.skipped)
    return breaks + [_skipped(text) for text in skipped.elements()]


def _growth(before: Counter[str], after: Counter[str]) -> Counter[str]:
    return Counter({text: growth(before[text], count) for text, count in after.items()})


def _listed(reason: Any) -> GraphBreak:
    text = _first_line(str(reason.reason))
    if text.startswith(_BRANCH):
        text = "Data-dependent branching"
    file, line = _users_line(getattr(reason, "user_stack", None) or ())
    return GraphBreak(text, file, line)


def _skipped(text: str) -> GraphBreak:
    match = _SKIPPED.search(text)
    assert match is not None
    return GraphBreak(f"{_first_line(text)}; not compiled", match["file"], int(match["line"]))


def _users_line(stack: Sequence[Any]) -> tuple[str, int]:
    """Return the file and line of the innermost frame outside PyTorch and Lightning."""
    own = [frame for frame in stack if not _LIBRARY.search(frame.filename)] or list(stack)
    return (own[-1].filename, own[-1].lineno or 0) if own else ("", 0)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
