"""The result of a check: a state, a message with the observed value, and a fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpu_magic.plain_text import printable

State = Literal["green", "amber", "red"]
Value = str | int | float | bool | None

STATES: tuple[State, ...] = ("red", "amber", "green")
"""States from worst to best: a failure, a possible problem, and no problem."""

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Finding:
    """The result of a check for one item.

    Placeholders such as ``{folder}`` replace private information in `text` and `fix`.
    """

    about: str  # the item that was checked, such as "torch" or "HPU 3"
    state: State
    text: str  # the result in full sentences
    fix: str = ""  # how to fix the problem; empty if the state is green
    values: Mapping[str, Value] = field(default_factory=dict)  # without private information
    private: Mapping[str, str] = field(default_factory=dict)  # the text for each placeholder

    def filled(self) -> tuple[str, str]:
        """Return `text` and `fix`, including private information, for the user of this machine."""
        return self._fill(self.text), self._fill(self.fix)

    def as_record(self) -> dict[str, Any]:
        """Return the finding as plain data, without private information."""
        return {
            "about": self.about,
            "state": self.state,
            "text": self.text,
            "fix": self.fix,
            "values": dict(self.values),
            "left_out": sorted(self.private),
        }

    def _fill(self, text: str) -> str:
        filled = _PLACE.sub(lambda place: self.private.get(place[1], place[0]), text)
        return printable(filled, keep="\n")
