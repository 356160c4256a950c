"""The documented runtime flags: environment variables of the vendor's libraries.

``runtime_flags.tsv`` lists their names, values and meanings. Most flags are read only once, when
the vendor's library is loaded, so a change requires a new process.
"""

from __future__ import annotations

import csv
import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpu_magic import backend
from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.table import Table
from hpu_magic.runtime.start import first_import
from hpu_magic.runtime.start import restart as kernel

# Maps the times at which flags are read to their names in the table.
READ = {
    "import": "at import",
    "load": "at import, by the bridge",
    "runtime": "when a card is acquired",
    "use": "at each use",
    "container": "when the container starts",
}
_SHORTEST_WORD = 3
_SWITCH = {"1": True, "true": True, "0": False, "false": False}


@dataclass(frozen=True)
class Flag:
    """One documented flag."""

    name: str
    kind: str  # "switch", "whole" (number), "text", or "choice:" followed by the values
    default: str  # value used if the variable is not set; empty if there is none
    read: str  # when the flag is read, which determines when a change takes effect; see `READ`
    simulated: str  # why the flag has no effect on the simulator; empty if it has one
    meaning: str

    def choices(self) -> list[str]:
        """Return the possible values, or an empty list if any text or number is valid."""
        kind, _, choices = self.kind.partition(":")
        return choices.split(",") if kind == "choice" else ["0", "1"] if kind == "switch" else []

    def accepts(self) -> str:
        """Return a description of the valid values."""
        kind, _, choices = self.kind.partition(":")
        if kind == "choice":
            return " or ".join(choices.split(","))
        return {"switch": "1 or 0 (true or false)", "whole": "a whole number"}.get(kind, "any text")

    def same(self, value: str, other: str) -> bool:
        """Return whether two values are equivalent, such as ``1`` and ``true`` for a switch."""
        if self.kind == "switch":
            return _SWITCH.get(value.lower(), value) == _SWITCH.get(other.lower(), other)
        return value == other

    def explained(self) -> str:
        """Return the flag's meaning and, if it has no effect on the simulator, the reason."""
        return " ".join(filter(None, (self.meaning, self.without_effect())))

    def without_effect(self) -> str:
        """Return why the flag has no effect on the simulator, or "" if it has an effect."""
        if not (self.simulated and backend.is_simulated()):
            return ""
        return f"No effect on the simulator: {self.simulated}."

    def check(self, value: str) -> None:
        """Raise an `HPUError` that lists the valid values if `value` is invalid."""
        kind, _, choices = self.kind.partition(":")
        if kind == "choice":
            fits = value in choices.split(",")
        elif kind == "switch":
            fits = value.lower() in _SWITCH
        elif kind == "whole":
            fits = re.fullmatch(r"-?[0-9]{1,20}", value) is not None
        else:
            fits = value.isprintable()
        if not fits:
            raise HPUError(f"{self.name}={value!r} is invalid: use {self.accepts()}.")


@functools.cache
def documented() -> Mapping[str, Flag]:
    """Return the documented flags by name, in the order of the documentation."""
    path = Path(__file__).parent / "runtime_flags.tsv"
    with path.open(encoding="utf-8", newline="") as rows:
        reader = csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["name"]: Flag(**row) for row in reader}


@dataclass(repr=False)
class FlagsReport(Table):
    """Flags and their values."""

    flags: list[Flag]  #: the flags in the table
    values: dict[str, str]  #: current values by name, omitting flags that are not set
    pending: dict[str, str | None]  #: values that will apply after a restart; None means unset
    restarting: bool = False  #: whether the kernel is being restarted
    folded: bool = False  #: whether to show only the number of flags with default values
    remarks: list[str] = field(default_factory=list)  #: notes about the flag that was set

    def title(self) -> str:
        """Return the headline."""
        if len(self.flags) == 1:
            return f"Runtime flag {self.flags[0].name} of {device.family()}"
        count = sum(map(self.differs, self.flags))
        differing = f"{count or 'none'} of them changed"
        return f"{len(self.flags)} runtime flags of {device.family()}, {differing}"

    def differs(self, flag: Flag) -> bool:
        """Return whether the value differs from the default, or will change after a restart."""
        value = self.values.get(flag.name, flag.default)
        return flag.name in self.pending or not flag.same(value, flag.default)

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("flag", "value", "default", "read", "meaning")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per flag; flags that differ from their defaults come first."""
        ordered = sorted(self.flags, key=lambda flag: not self.differs(flag))
        return [
            (
                flag.name,
                self._value(flag),
                flag.default or "none",
                READ[flag.read],
                flag.explained(),
            )
            for flag in ordered
        ]

    def __repr__(self) -> str:
        if not self.folded:
            return super().__repr__()
        changed, others = self._parted()
        search = f"{changed._rest(others)}; %hpu_flags WORD searches names and meanings."
        body = repr(changed).splitlines()[1:]
        return "\n".join([self.title(), *body, f"  {search}"])

    def html_body(self) -> str:
        """Return the table as HTML; flags with default values are collapsed."""
        if not self.folded:
            return super().html_body()
        changed, others = self._parted()
        return (
            f"{changed.html_body()}<details><summary>{changed._rest(others)}</summary>"
            f"{others.html_body()}</details><div>%hpu_flags WORD searches names and meanings.</div>"
        )

    def _rest(self, others: FlagsReport) -> str:
        return f"{f'{len(others.flags)} others' if self.flags else 'All'} have default values"

    def _parted(self) -> tuple[FlagsReport, FlagsReport]:
        """Return one report of the changed flags, with all notes, and one of the other flags."""
        changed = [flag for flag in self.flags if self.differs(flag)]
        others = [flag for flag in self.flags if not self.differs(flag)]
        return (
            replace(self, flags=changed, folded=False),
            FlagsReport(others, self.values, {}),
        )

    def notes(self) -> Sequence[str]:
        """Return notes on how a change takes effect."""
        if self.restarting:
            return [*self.remarks, "Restarting the kernel; run your cells again."]
        shown = [flag.name for flag in self.flags if flag.name in self.pending]
        if not shown:
            return self.remarks
        names = ", ".join(shown)
        verb = "is" if len(shown) == 1 else "are"
        return [
            *self.remarks,
            f"{names} {verb} read only once: type %hpu_flags --restart to apply the change "
            f"(variables will be lost).",
        ]

    def _value(self, flag: Flag) -> str:
        value = self.values.get(flag.name, "not set")
        if flag.name in self.pending:
            coming = self.pending[flag.name]
            return f"{value} ({'not set' if coming is None else coming} after a restart)"
        return value


def show_or_set(
    name: str | None = None, value: str | None = None, *, restart: bool = False
) -> FlagsReport:
    """Set a flag if a value is passed, and return a report of flags; see `hpu_magic.flags`."""
    chosen = list(documented().values()) if name is None else _named(name, value)
    remarks = []
    if name is not None and value is not None:
        remarks = _set(chosen[0], value)
    values, pending = _state()
    report = FlagsReport(chosen, values, pending, folded=name is None, remarks=remarks)
    if restart and (name is None or any(flag.name in pending for flag in chosen)):
        kernel.restart_kernel(remembered=True)
        report.restarting = True
    elif restart:
        report.remarks.append("No restart is needed.")
    return report


def _named(name: str, value: str | None) -> list[Flag]:
    known = documented()
    if name in known:
        return [known[name]]
    beginning = [flag for flag in known.values() if name and flag.name.startswith(name.upper())]
    if value is None and (matches := beginning or _mentioning(name)):
        return matches
    fix = suggestion(name.upper(), known) or "type %hpu_flags for the list."
    raise HPUError(f"Unknown flag {name!r}: {fix}")


def _mentioning(word: str) -> list[Flag]:
    """Return the flags whose names contain a word, followed by those whose meanings contain it."""
    word = word.lower()
    if len(word) < _SHORTEST_WORD:
        return []
    flags = documented().values()
    named = [flag for flag in flags if word in flag.name.lower()]
    return named + [flag for flag in flags if flag not in named and word in flag.meaning.lower()]


def _set(flag: Flag, value: str) -> list[str]:
    if flag.read == "container":
        raise HPUError(
            f"{flag.name} is read when the container starts: pass it to the container "
            f"(docker run -e {flag.name}={value or 'VALUE'})."
        )
    if value:
        flag.check(value)
    in_time = _in_time(flag)
    if not in_time and not kernel.interactive():
        raise HPUError(f"{flag.name} has already been read: start python with {flag.name}={value}.")
    if not value:
        os.environ.pop(flag.name, None)
    elif in_time:
        os.environ[flag.name] = value
    kernel.remember({flag.name: value or None})
    if flag.without_effect():
        return [flag.without_effect()]
    if not in_time:
        return []
    return [f"{flag.name} takes effect now." if flag.read == "use" else _soon(flag)]


def _soon(flag: Flag) -> str:
    moment = "the first hpu tensor" if flag.read == "runtime" else "`import torch`"
    return f"{flag.name} takes effect with {moment}."


def _in_time(flag: Flag) -> bool:
    if flag.read == "use":
        return True
    return not device.taken() if flag.read == "runtime" else not device.bridge_loaded()


def _state() -> tuple[dict[str, str], dict[str, str | None]]:
    """Return the current values, and the values that will apply after a restart."""
    at_import = first_import.environment_at_import() if device.bridge_loaded() else os.environ
    values: dict[str, str] = {}
    pending: dict[str, str | None] = {}
    remembered = kernel.recall() if kernel.interactive() else {}
    for name, flag in documented().items():
        source = at_import if flag.read in ("import", "load") else os.environ
        if name in source:
            values[name] = source[name]
        coming = remembered.get(name, values.get(name) if name in os.environ else None)
        after = flag.default if coming is None else coming
        if not flag.same(after, values.get(name, flag.default)):
            pending[name] = coming
    return values, pending
