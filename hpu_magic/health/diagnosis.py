"""All findings of one examination, as people and programs read them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hpu_magic
from hpu_magic.health import page, terminal
from hpu_magic.health.checks import CHECKS
from hpu_magic.health.finding import STATES, Finding, State
from hpu_magic.health.machine import Machine

SCHEMA = 1
"""Raised when a key of `Diagnosis.as_record` changes its meaning or goes; new keys may come."""

LEFT_OUT = (
    "Left out: names of users, hosts, folders, files and notebooks, who holds a card, addresses, "
    "tokens and the values of proxy variables."
)


class Record(dict[str, Any]):
    """Plain data that prints as JSON."""

    def __repr__(self) -> str:
        return json.dumps(self, indent=2)


@dataclass(frozen=True)
class Examined:
    """A check and what it found.

    Attributes
    ----------
    group, check : str
        ``"host"`` and ``"shared_memory"``, for example.
    findings : tuple of Finding
        None where the check has nothing to say of this machine.
    """

    group: str
    check: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What the doctor found.

    Attributes
    ----------
    examined : tuple of Examined
        In the order of their groups.
    simulated : bool
        Whether the device is simulated.
    everything : bool
        Whether green findings are shown one by one.
    """

    examined: tuple[Examined, ...]
    simulated: bool
    everything: bool = False

    @property
    def state(self) -> State:
        """The worst state of all findings."""
        return next(state for state in STATES if state == "green" or self.of(state))

    def of(self, state: State) -> list[Finding]:
        """Return the findings of a state."""
        return [finding for _, finding in self.findings() if finding.state == state]

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield each finding with its group."""
        for examined in self.examined:
            for finding in examined.findings:
                yield examined.group, finding

    def headline(self) -> str:
        """Return how many findings there are of each state."""
        kind = "simulated cards" if self.simulated else "Intel Gaudi"
        counts = [f"{len(self.of(state))} {state}" for state in STATES if self.of(state)]
        return f"Doctor, {kind}: {', '.join(counts)}"

    def as_record(self) -> Record:
        """Return all findings as plain data that may be shown to others.

        Keys: ``schema`` (`SCHEMA`), ``hpu_magic`` (its version), ``time`` (seconds since the
        epoch), ``simulated``, ``state`` (the worst), ``left_out`` (a sentence), and ``findings``,
        each with ``group``, ``check``, ``about``, ``state``, ``text``, ``fix``, ``values`` (sizes
        in bytes) and ``left_out``: the names that stand in braces in ``text`` or ``fix`` where
        something private was left out.
        """
        return Record(
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
        """Return it for a terminal."""
        return terminal.text(self.headline(), self._shown(), self._folded(), colours)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return page.html(self.headline(), self._shown(), self._folded())

    def _shown(self) -> Sequence[tuple[str, Finding]]:
        """Return what is shown with its group: the worst first, green ones only if asked for."""
        return [
            (group, finding)
            for state in STATES
            if state != "green" or self.everything
            for group, finding in self.findings()
            if finding.state == state
        ]

    def _folded(self) -> Sequence[tuple[str, Finding]]:
        """Return the green findings that are only counted."""
        return [
            (group, finding)
            for group, finding in self.findings()
            if finding.state == "green" and not self.everything
        ]


def examine(machine: Machine, *, everything: bool = False) -> Diagnosis:
    """Run all checks on a machine.

    Parameters
    ----------
    machine : Machine
        What to look at.
    everything : bool
        Show green findings one by one.
    """
    examined = []
    for group, checks in CHECKS.items():
        for check in checks:
            try:
                findings = tuple(check(machine))
            # Of another's file, the content may be no text, or a number beyond all bounds.
            except (OSError, ValueError) as error:
                findings = (_unseen(check.__name__, error),)
            examined.append(Examined(group, check.__name__, findings))
    return Diagnosis(tuple(examined), machine.simulated, everything)


def _unseen(check: str, error: OSError | ValueError) -> Finding:
    about = check.replace("_", " ")
    private = {"what": str(error)}
    if isinstance(error, OSError):
        text = f"This could not be looked at: {error.strerror or type(error).__name__} ({{file}})."
        private = {"file": str(error.filename)}
        return Finding(about, "amber", text, "Look whether you may read it.", private=private)
    text = "This could not be looked at, as a value is none that it may have: {what}."
    fix = "Look at the variables and files that this is about."
    return Finding(about, "amber", text, fix, private=private)
