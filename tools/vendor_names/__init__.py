"""The vendor's public Python names and operators, and how well the simulator supports each.

Tests and the site read the tables ``names.tsv`` and ``operators.tsv``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_BRIDGE = "habana_frameworks.torch"
_ROOTS = ("habana_dataloader.", "habana_frameworks.", "torch_hpu.")
_NAMESPACE = "hpu::"

_REASONS = {
    "compiler": "Calls the vendor's graph compiler, which the simulator does not have.",
    "graphs": "Option of the vendor's graph compiler; its value does not affect results.",
    "named": "The published sources contain only this name.",
    "eager": "In eager mode and in compiled graphs, as on a card.",
    "lazy": "In lazy mode, as on a card.",
    "closed": "Computed by a closed-source kernel.",
    "internal": "Internal to the vendor's graphs; a card has no kernel for direct calls either.",
    "collective": "A collective inside the vendor's graphs.",
    "flag": "In eager mode with PT_HPU_OVERRIDE_LINEAR_MATMUL_EAGER=1, as on a card.",
    "later": "In later releases; its declaration is inferred from calls in public libraries.",
    "lazy_form": "Variant for lazy mode; the card has no kernel for it.",
    "compiled": "For the vendor's torch.compile; the simulator runs PyTorch's operator instead.",
    "declared": "Some argument names differ from PyTorch's declaration; results are computed as "
    "on a card.",
    "pytorch": "The bridge's variant of a PyTorch or torchvision operator; the original runs here.",
}


class State(Enum):
    """How well the simulator supports a name."""

    COMPLETE = "complete"
    ACCEPTED = "accepted"
    ABSENT = "absent"


@dataclass(frozen=True)
class Name:
    """A name that scripts import.

    Attributes
    ----------
    group : str
        Heading of the section in the table.
    name : str
        Dotted name, relative to `habana_frameworks.torch` unless it starts with another package.
    signature : str
        Documented parameters in parentheses; empty if they are not documented.
    state : State
    note : str
        Why support is incomplete, or any special behavior.
    """

    group: str
    name: str
    signature: str
    state: State
    note: str

    @property
    def path(self) -> str:
        """The absolute dotted name."""
        return self.name if self.name.startswith(_ROOTS) else f"{_BRIDGE}.{self.name}"

    def find(self) -> Any:
        """Import the name and return the object.

        Raises
        ------
        ImportError
            The module does not exist.
        AttributeError
            The module or class does not have this name.
        """
        parts = self.path.split(".")
        found: Any = importlib.import_module(parts[0])
        for number, part in enumerate(parts[1:], 2):
            if not hasattr(found, part) and hasattr(found, "__path__"):
                try:
                    importlib.import_module(".".join(parts[:number]))
                except ModuleNotFoundError as missing:
                    if missing.name != ".".join(parts[:number]):
                        raise
            found = getattr(found, part)
        return found


@dataclass(frozen=True)
class Operator:
    """An operator of the vendor's libraries.

    Attributes
    ----------
    schema : str
        The vendor's declaration, with the namespace.
    state : State
    note : str
        Why the operator is absent, or the only mode in which it exists.
    """

    schema: str
    state: State
    note: str

    def is_defined(self, lazy: bool, own_linear: bool = False) -> bool:
        """Return whether the engine defines the operator in the given mode.

        `own_linear` is the flag that replaces linear and matmul with the bridge's operators.
        """
        elsewhere = {_REASONS["eager" if lazy else "lazy"]}
        if lazy or not own_linear:
            elsewhere.add(_REASONS["flag"])
        return self.state is not State.ABSENT and self.note not in elsewhere

    @property
    def name(self) -> str:
        """The namespace, name and overload."""
        return self.schema.partition("(")[0]

    @property
    def is_own(self) -> bool:
        """Whether the operator is in the vendor's namespace, ``torch.ops.hpu``."""
        return self.schema.startswith(_NAMESPACE)


def names() -> list[Name]:
    """Return the Python names in the order of their table."""
    group, found = "", []
    for line in _lines("names.tsv"):
        if line.startswith("== "):
            group = line[3:]
        else:
            name, signature, state, note = line.split("\t")
            found.append(Name(group, name, signature, State(state), _reason(note)))
    return found


def operators() -> list[Operator]:
    """Return the operators in the order of their table."""
    rows = (line.split("\t") for line in _lines("operators.tsv"))
    return [Operator(schema, State(state), _reason(note)) for state, note, schema in rows]


def _lines(file: str) -> Iterator[str]:
    for line in (_FOLDER / file).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def _reason(note: str) -> str:
    return _REASONS[note[1:]] if note.startswith("@") else note
