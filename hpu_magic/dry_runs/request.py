"""The script or cell of a dry run, its options and its environment."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from hpu_magic.errors import HPUError, choice, suggestion

CARDS = ("gaudi", "gaudi2", "gaudi3")
HOSTS = ("ideal", "measured")
_PER_NODE = 8  # cards
_VALUE = re.compile(r"(?P<file>.+):(?P<line>[0-9]+)=(?P<value>[^=]+)")


@dataclass(frozen=True)
class Request:
    """A script or a cell, and the options of its dry run.

    Attributes
    ----------
    script : str or None
        Path of the script; None means that `code` is run.
    arguments : sequence of str
        Arguments of the script.
    code : str or None
        Code of a cell.
    push : mapping
        Variables of the cell.
    card : str or None
        ``"gaudi"``, ``"gaudi2"`` or ``"gaudi3"``; None means ``HPU_MAGIC_CARD``.
    cards : int
        Number of ranks, one per card.
    nodes : int or None
        Number of machines; None means as few as possible, with eight cards each.
    steps : int or None
        Number of optimizer steps; the run ends earlier if the steps repeat.
    whole : bool
        Do not end the run when the steps repeat.
    host : str or None
        ``"ideal"``, or ``"measured"`` to include the time that Python and data loading take on this
        machine; None means ``HPU_MAGIC_CARD_TIME``, or ``"ideal"`` if it is off.
    trace : str or None
        File for a trace of a step on the card's clock.
    values : sequence of str
        Stand-ins for values that a line reads, each as ``FILE:LINE=VALUE``.
    imbalance : float
        Tokens of the first card's experts relative to the mean.
    """

    script: str | None = None
    arguments: Sequence[str] = ()
    code: str | None = None
    push: Mapping[str, Any] = field(default_factory=dict)
    card: str | None = None
    cards: int = 1
    nodes: int | None = None
    steps: int | None = None
    whole: bool = False
    host: str | None = None
    trace: str | None = None
    values: Sequence[str] = ()
    imbalance: float = 1.0

    @property
    def name(self) -> str:
        """The script's path, or ``the cell``."""
        return "the cell" if self.script is None else self.script

    def check(self) -> None:
        """Raise HPUError if the script does not exist or an option is invalid."""
        self._check_code()
        _check_choice("card", self.card, CARDS)
        _check_choice("host", self.host, HOSTS)
        self.machines()
        self.supplied()
        self._check_imbalance()
        if self.steps is not None and self.steps < 1:
            raise HPUError(f"The number of steps must be at least 1, got {self.steps}.")
        if self.trace is not None and not Path(self.trace).absolute().parent.is_dir():
            raise HPUError(f"The folder of {self.trace!r} does not exist; create it first.")

    def _check_code(self) -> None:
        if (self.script is None) == (self.code is None):
            raise HPUError("A dry run needs either a script or code; pass one of them.")
        if self.script is not None and not Path(self.script).is_file():
            command = shutil.which(self.script)
            example = f", such as {command}" if command else ""
            raise HPUError(
                f"{self.script!r} is not a file; pass the path of a Python script{example}."
            )
        if self.push and self.code is None:
            raise HPUError("Variables can be copied only to code; pass arguments to the script.")

    def _check_imbalance(self) -> None:
        if not 1 <= self.imbalance < inf:
            raise HPUError(
                f"imbalance={self.imbalance!r} is not a ratio of tokens: use 1.0 if all cards "
                "process the same number of tokens, or the tokens of the busiest card divided by "
                "the mean."
            )
        if self.imbalance > self.cards:
            raise HPUError(
                f"imbalance={self.imbalance:g} is impossible with cards={self.cards}, because a "
                f"card with all tokens has {self.cards} times the mean: use more cards, or at most "
                f"{self.cards}."
            )

    def machines(self) -> int:
        """Return the number of machines.

        Raises
        ------
        HPUError
            The cards cannot be divided among the machines.
        """
        cards = self.cards
        if cards < 1:
            raise HPUError(f"The number of cards must be at least 1, got {cards}.")
        nodes = -(-cards // _PER_NODE) if self.nodes is None else self.nodes
        if nodes < 1 or cards % nodes or cards // nodes > _PER_NODE:
            raise HPUError(
                f"{cards} cards cannot be divided among {nodes} machines with at most {_PER_NODE} "
                "cards each; choose other values of --cards and --nodes."
            )
        return nodes

    def supplied(self) -> list[tuple[str, int, float]]:
        """Return the file, line and value of each stand-in in `values`.

        Raises
        ------
        HPUError
            A stand-in is invalid.
        """
        return [_supplied(each) for each in self.values]

    def environment(self, folder: str, rank: int = 0) -> dict[str, str]:
        """Return the environment variables of a rank; its simulated card is in `folder`."""
        variables = {**os.environ, "HPU_MAGIC_CARDS_DIR": str(Path(folder) / f"cards{rank}")}
        if self.card is not None:
            variables["HPU_MAGIC_CARD"] = choice(self.card, CARDS) or self.card
        if self.host is not None:
            variables["HPU_MAGIC_CARD_TIME"] = choice(self.host, HOSTS) or self.host
        elif variables.get("HPU_MAGIC_CARD_TIME", "0") in ("", "0"):
            variables["HPU_MAGIC_CARD_TIME"] = "ideal"
        variables["HPU_MAGIC_CARDS"] = str(self.cards // self.machines())
        if self.cards > 1:
            variables |= _world(self.cards, self.machines(), rank)
        return variables


def _check_choice(what: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and choice(value, choices) is None:
        fix = suggestion(value, choices) or f"use {' or '.join(choices)}."
        raise HPUError(f"Unknown {what} {value!r}: {fix}")


def _supplied(text: str) -> tuple[str, int, float]:
    match = _VALUE.fullmatch(text.strip())
    try:
        if match:
            return match["file"], int(match["line"]), float(match["value"])
    except ValueError:
        pass
    raise HPUError(f"{text!r} is not a valid value: use FILE:LINE=NUMBER, such as train.py:42=0.5.")


def _world(cards: int, nodes: int, rank: int) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank."""
    per_node = cards // nodes
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % per_node),
        "GROUP_RANK": str(rank // per_node),
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(cards),
        "LOCAL_WORLD_SIZE": str(per_node),
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_WORLD_SIZE": str(cards),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "dry-run",
    }
