"""One finding of a check: its state, a sentence with the value, and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpu_magic.plain_text import printable

State = Literal["green", "amber", "red"]
Value = str | int | float | bool | None

STATES: tuple[State, ...] = ("red", "amber", "green")
"""From the worst to the best: a failure; a possible problem; no problem."""

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Finding:
    """The result of one check for one item.

    Attributes
    ----------
    about : str
        The checked item, in a few words: ``"torch"``, ``"HPU 3"``.
    state : {"green", "amber", "red"}
        See `STATES`.
    text : str
        The problem, as sentences. Placeholders such as ``{folder}`` replace private information.
    fix : str
        What to do, with the same placeholders; empty if the state is green.
    values : dict
        The figures of the check, without private information.
    private : dict of str to str
        The private information, by the name of its placeholder.
    """

    about: str
    state: State
    text: str
    fix: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)

    def filled(self) -> tuple[str, str]:
        """Return `text` and `fix` with the private information, for the user of this machine."""
        return self._fill(self.text), self._fill(self.fix)

    def as_record(self) -> dict[str, Any]:
        """Return the finding as plain data without the private information."""
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
