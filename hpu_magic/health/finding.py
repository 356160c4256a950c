"""What a check found: how it stands, a sentence with the value, and the fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpu_magic.plain_text import printable

State = Literal["green", "amber", "red"]
Value = str | int | float | bool | None

STATES: tuple[State, ...] = ("red", "amber", "green")
"""From the worst to the best: something fails; something hurts, or may; all is well."""

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    about : str
        What was looked at, in a few words: ``"torch"``, ``"HPU 3"``.
    state : {"green", "amber", "red"}
        See `STATES`.
    text : str
        What is the case, in sentences. Private parts stand as ``{folder}``.
    fix : str
        What to do; empty where nothing is wrong. Private parts stand as in `text`.
    values : dict
        The figures behind it, which may be told to anybody.
    private : dict of str to str
        What only this machine's user should read, by the name that stands in its place.
    """

    about: str
    state: State
    text: str
    fix: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)

    def told(self) -> tuple[str, str]:
        """Return text and fix for this machine's user, with the private parts in their places."""
        return self._filled(self.text), self._filled(self.fix)

    def as_record(self) -> dict[str, Any]:
        """Return it for others, as plain data: private parts are left out and named."""
        return {
            "about": self.about,
            "state": self.state,
            "text": self.text,
            "fix": self.fix,
            "values": dict(self.values),
            "left_out": sorted(self.private),
        }

    def _filled(self, text: str) -> str:
        filled = _PLACE.sub(lambda place: self.private.get(place[1], place[0]), text)
        return printable(filled, keep="\n")
