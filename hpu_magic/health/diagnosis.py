"""All of the doctor's findings, as text, HTML and plain data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hpu_magic
from hpu_magic.health import display
from hpu_magic.health.checks import CHECKS
from hpu_magic.health.finding import STATES, Finding, State
from hpu_magic.health.machine import Machine

SCHEMA = 1
"""Incremented whenever a key of `Diagnosis.to_dict` is removed or its meaning changes."""

LEFT_OUT = (
    "Left out: names of users, hosts, folders, files and notebooks, holders of cards, addresses, "
    "tokens and the values of proxy variables."
)


class JsonRecord(dict[str, Any]):
    """Plain data that is printed as JSON."""

    def __repr__(self) -> str:
        return json.dumps(self, indent=2)


@dataclass(frozen=True)
class Examined:
    """A check and its findings."""

    group: str  # name of the group, such as "host"
    check: str  # name of the check, such as "shared_memory"
    findings: tuple[Finding, ...]  # none if the check does not apply to this machine


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """The doctor's findings."""

    examined: tuple[Examined, ...]  # in group order
    simulated: bool  # whether the device is simulated
    everything: bool = False  # whether green findings are listed

    @property
    def state(self) -> State:
        """The worst state of all findings."""
        return next(state for state in STATES if state == "green" or self.of(state))

    def of(self, state: State) -> list[Finding]:
        """Return the findings that have the given state."""
        return [finding for _, finding in self.findings() if finding.state == state]

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield each finding together with its group."""
        for examined in self.examined:
            for finding in examined.findings:
                yield examined.group, finding

    def headline(self) -> str:
        """Return a line that states how many findings are in each state."""
        kind = "simulated cards" if self.simulated else "Intel Gaudi"
        counts = [f"{len(self.of(state))} {state}" for state in STATES if self.of(state)]
        return f"Doctor, {kind}: {', '.join(counts)}"

    def to_dict(self) -> JsonRecord:
        """Return all findings as plain data that can be shared.

        The keys are ``schema`` (`SCHEMA`), ``hpu_magic`` (its version), ``time`` (in seconds since
        the epoch), ``simulated``, ``state`` (the worst one), ``left_out`` (a sentence), and
        ``findings``. Each finding has ``group``, ``check``, ``about``, ``state``, ``text``,
        ``fix``, ``values`` (with sizes in bytes) and ``left_out``. ``left_out`` lists the names of
        placeholders, such as ``{folder}``, that replace private information in ``text`` and
        ``fix``.
        """
        return JsonRecord(
            schema=SCHEMA,
            hpu_magic=hpu_magic.__version__,
            time=round(time.time(), 3),
            simulated=self.simulated,
            state=self.state,
            left_out=LEFT_OUT,
            findings=[
                {"group": examined.group, "check": examined.check, **finding.as_record()}
                for examined in self.examined
                for finding in examined.findings
            ],
        )

    def text(self, *, colours: bool = False) -> str:
        """Return the findings as text for a terminal."""
        return display.text(self.headline(), self._shown(), self._folded(), colours)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return display.html(self.headline(), self._shown(), self._folded())

    def _shown(self) -> Sequence[tuple[str, Finding]]:
        """Return the findings to list together with their groups, from worst to best."""
        listed = STATES if self.everything else STATES[:-1]
        shown = [pair for pair in self.findings() if pair[1].state in listed]
        return sorted(shown, key=lambda pair: STATES.index(pair[1].state))

    def _folded(self) -> Sequence[tuple[str, Finding]]:
        """Return the green findings that are counted but not listed."""
        return [pair for pair in self.findings() if pair not in self._shown()]


def examine(machine: Machine, *, everything: bool = False) -> Diagnosis:
    """Run all checks on a machine; if `everything` is true, also list green findings."""
    examined = []
    for group, checks in CHECKS.items():
        for check in checks:
            try:
                findings = tuple(check(machine))
            # A file or variable may contain invalid text, or a number that is too large.
            except (OSError, ValueError) as error:
                findings = (_failed(check.__name__, error),)
            examined.append(Examined(group, check.__name__, findings))
    return Diagnosis(tuple(examined), machine.simulated, everything)


def _failed(check: str, error: OSError | ValueError) -> Finding:
    about = check.replace("_", " ")
    private = {"error": str(error)}
    if isinstance(error, OSError):
        text = f"The check failed: {error.strerror or type(error).__name__} ({{file}})."
        private = {"file": str(error.filename)}
        fix = "Check that you have permission to read the file."
        return Finding(about, "amber", text, fix, private=private)
    text = "The check failed because of an invalid value: {error}."
    fix = "Correct the variables and files that this check reads."
    return Finding(about, "amber", text, fix, private=private)
