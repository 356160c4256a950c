"""Reads the two tables: ``names.tsv`` of the Python names, ``operators.tsv`` of ``torch.ops``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_BRIDGE = "habana_frameworks.torch"
_ROOTS = ("habana_frameworks.", "torch_hpu.")
_NAMESPACE = "hpu::"

_REASONS = {
    "compiler": "It speaks to the vendor's graph compiler, which a simulator has not.",
    "graphs": "It steers the vendor's graph compiler; the value is kept, and no result changes.",
    "named": "The sources give its name and nothing else.",
    "eager": "In eager mode, and in what is compiled, as on the card.",
    "lazy": "In lazy mode, as on the card.",
    "closed": "What it computes lies in a closed kernel.",
    "internal": "A word of the vendor's own graphs: on the card, too, it has no kernel to call.",
    "collective": "A collective inside the vendor's graphs.",
    "flag": "In eager mode with PT_HPU_OVERRIDE_LINEAR_MATMUL_EAGER=1, as on the card.",
    "later": "Of later releases; its declaration follows how public libraries call it.",
    "lazy_form": "The form of lazy mode, for which the card has no kernel.",
    "compiled": "What the vendor's torch.compile writes for PyTorch's operator, which runs here.",
    "declared": "PyTorch declares it, some arguments by other names; computed as on the card.",
    "pytorch": "The bridge's own form of what PyTorch or torchvision defines; theirs runs here.",
}


class State(Enum):
    """What the simulator does with a name."""

    COMPLETE = "complete"
    ACCEPTED = "accepted"
    ABSENT = "absent"


@dataclass(frozen=True)
class Name:
    """A name that scripts import.

    Attributes
    ----------
    group : str
        Heading that it stands under.
    name : str
        Dotted, within `habana_frameworks.torch` unless it begins with another package.
    signature : str
        Its documented parameters in parentheses, empty where they are not documented.
    state : State
    note : str
        Why it is not complete, or what is particular.
    """

    group: str
    name: str
    signature: str
    state: State
    note: str

    @property
    def path(self) -> str:
        """The name from its package on."""
        return self.name if self.name.startswith(_ROOTS) else f"{_BRIDGE}.{self.name}"

    def find(self) -> Any:
        """Import the name and return what it stands for.

        Raises
        ------
        ImportError
            There is no such module.
        AttributeError
            The module, or the class, has no such name.
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
        As the vendor declares it, with its namespace.
    state : State
    note : str
        Why it is absent, or the one mode that has it.
    """

    schema: str
    state: State
    note: str

    def is_defined(self, lazy: bool, own_linear: bool = False) -> bool:
        """Tell whether the engine defines it in this mode; a process has one.

        `own_linear` stands for the flag that brings in the bridge's linear and matmul.
        """
        elsewhere = {_REASONS["eager" if lazy else "lazy"]}
        if lazy or not own_linear:
            elsewhere.add(_REASONS["flag"])
        return self.state is not State.ABSENT and self.note not in elsewhere

    @property
    def name(self) -> str:
        """Namespace, name and overload."""
        return self.schema.partition("(")[0]

    @property
    def is_own(self) -> bool:
        """Whether it is one of the vendor's own, ``torch.ops.hpu``."""
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
