"""Types of parameters that a magic reads as names of variables or as lists of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Variable:
    """The magic takes the name of a variable, the function its value.

    Attributes
    ----------
    kind : str
        Which variables Tab offers: the name of a function of `hpu_magic.magics.kinds`.
    several : bool
        The magic takes several names, separated by commas.
    """

    kind: str
    several: bool = False


@dataclass(frozen=True)
class Words:
    """The magic takes several words, separated by commas."""


Model = Annotated[Any, Variable("module")]
Movable = Annotated[Any, Variable("movable")]
Tensors = Annotated[Sequence[Any], Variable("tensor", several=True)]
Inputs = Annotated[Any, Variable("of_tensors", several=True)]
Names = Annotated[Sequence[str], Words()]
