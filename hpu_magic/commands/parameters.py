"""Parameter types that a magic reads as names of variables or as lists of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple


class Variable(NamedTuple):
    """A parameter whose value the magic reads from the named variable."""

    kind: str  # a function in `hpu_magic.magics.kinds` that selects variables for Tab completion
    several: bool = False  # whether the magic accepts several names, separated by commas
    or_text: bool = False  # whether to pass the word itself if there is no such variable
    or_path: bool = False  # whether to pass the word even if it contains periods, like a path


class Words(NamedTuple):
    """A parameter for which the magic reads several words, separated by commas."""

    type: Callable[[str], Any] = str  # converts each word
    repeats: bool = False  # whether the option can be repeated


Model = Annotated[Any, Variable("module")]
Movable = Annotated[Any, Variable("movable")]
Tensors = Annotated[Any, Variable("tensor", several=True)]
Inputs = Annotated[Any, Variable("inputs", several=True)]
Loader = Annotated[Any, Variable("data")]
Names = Annotated[Sequence[str] | None, Words()]
Numbers = Annotated[Sequence[int] | None, Words(int)]
Card = Literal["gaudi", "gaudi2", "gaudi3"]
Host = Literal["ideal", "measured"]
