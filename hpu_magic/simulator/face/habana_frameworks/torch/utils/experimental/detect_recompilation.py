"""Finding inputs whose shapes change, each of which costs a compilation."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from habana_frameworks.torch.utils.experimental._batches import Shapes, shapes_of
from habana_frameworks.torch.utils.experimental._constant_shapes import (
    const_shape_dataloader as const_shape_dataloader,
)
from habana_frameworks.torch.utils.experimental._watched_modules import watch

import torch

_DYNAMICITY = ((1, "There is no"), (5, "There is a little"), (20, "There is some"))


def get_shape(x: Any) -> Any:
    """Return what the shapes of `x` are known by, to compare inputs of two calls.

    That is a tensor's shape as a tuple, a tuple of those of a list's or tuple's items, a tuple of
    (key, value) pairs of those of a dict's, and the hash of anything else, with a printed line.

    Raises
    ------
    TypeError
        Something else is not hashable.
    """
    if isinstance(x, torch.Tensor):
        return tuple(x.shape)
    if isinstance(x, (list, tuple)):
        return tuple(get_shape(item) for item in x)
    if isinstance(x, dict):
        return tuple((get_shape(key), get_shape(value)) for key, value in x.items())
    print(f"{x!r} of type {type(x).__name__} has no shape; its hash is used.")
    return hash(x)


def data_dynamicity(dl: Iterable[Any]) -> dict[Shapes, int]:
    """Read all batches of a loader, print how often each combination of shapes comes, return it.

    More than one combination means more than one compilation of everything that the batches
    go through. Batches are tensors, or lists, tuples and mappings that hold tensors.

    Returns
    -------
    dict
        Shapes of a batch's tensors to the number of such batches, the most frequent first.

    Raises
    ------
    AssertionError
        Several processes work together: each would see its own share only.
    """
    refuse_several_processes()
    counts = collections.Counter(shapes_of(batch) for batch in dl)
    by_frequency = dict(counts.most_common())
    print("batches  shapes")
    for shapes, count in by_frequency.items():
        print(f"{count:>7}  {', '.join(str(list(shape)) for shape in shapes)}")
    amount = next((text for most, text in _DYNAMICITY if len(counts) <= most), "There is a lot of")
    print(f"{amount} dynamicity in input data shapes")
    return by_frequency


def detect_recompilation_auto_model(
    model: torch.nn.Module, mdlname: str = "Net", waittime: float = 1, csv_out: str = "out"
) -> torch.nn.Module:
    """Let `model` tell which modules and input shapes made graphs compile, and return it.

    It is the same module, changed in place, with three more methods:

    ``report()``
        prints a table of the input shapes and returns it as a list with the fields ``shapes``,
        ``calls`` and ``compilations``. A call answers for every graph compiled from its start to
        that of the next one, and so for its backward pass and for the optimizer's step.
    ``raw_logs()``
        returns a line of text for each call of each of its modules.
    ``analyse_dynamicity()``
        prints which modules compiled graphs at which step, and how often each one did, and
        writes both tables to the files ``<csv_out>_1.csv`` and ``<csv_out>_2.csv``.

    What a module has recorded is executed as its call ends, so that lazy mode compiles it there.

    Parameters
    ----------
    model : torch.nn.Module
    mdlname : str
        What the tables call the model itself.
    waittime : float
        Accepted without effect: graphs are compiled when their execution returns, and there is
        nothing to wait for.
    csv_out : str
        How the names of the files begin.

    Raises
    ------
    AssertionError
        Several processes work together.
    """
    refuse_several_processes()
    return watch(model, mdlname, csv_out)


def refuse_several_processes() -> None:
    """Refuse to look at one of several processes."""
    distributed = torch.distributed
    assert not (distributed.is_available() and distributed.is_initialized()), (
        "Expected 1x run, but torch being used in distributed fashion"
    )
