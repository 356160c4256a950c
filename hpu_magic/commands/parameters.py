"""Types of parameters that a magic reads as names of variables or as lists of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Variable:
    """The magic reads the name of a variable, and the function gets its value.

    Attributes
    ----------
    kind : str
        Which variables Tab completes: the name of a function of `hpu_magic.magics.kinds`.
    several : bool
        The magic reads several names, separated by commas.
    or_text : bool
        A word that names no variable is passed as text.
    """

    kind: str
    several: bool = False
    or_text: bool = False


@dataclass(frozen=True)
class Words:
    """The magic reads several words, separated by commas.

    Attributes
    ----------
    type : callable
        Converts each word.
    """

    type: Callable[[str], Any] = str


Model = Annotated[Any, Variable("module")]
Movable = Annotated[Any, Variable("movable")]
Tensors = Annotated[Any, Variable("tensor", several=True)]
Inputs = Annotated[Any, Variable("inputs", several=True)]
Loader = Annotated[Any, Variable("data")]
Names = Annotated[Sequence[str] | None, Words()]
Numbers = Annotated[Sequence[int] | None, Words(int)]
Card = Literal["gaudi", "gaudi2", "gaudi3"]
