"""Detect varying input shapes, which cause recompilations."""

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
    """Return a key for the shapes in `x`, to compare the inputs of two calls.

    The key of a tensor is its shape. The key of a list or tuple is a tuple of keys, and the key of
    a dict is a tuple of (key, value) pairs. For any other object, the key is its hash, and a
    message is printed. Raises TypeError if such an object is not hashable.
    """
    if isinstance(x, torch.Tensor):
        return tuple(x.shape)
    if isinstance(x, (list, tuple)):
        return tuple(get_shape(item) for item in x)
    if isinstance(x, dict):
        return tuple((get_shape(key), get_shape(value)) for key, value in x.items())
    print(f"{x!r} of type {type(x).__name__} has no shape; using its hash.")
    return hash(x)


def data_dynamicity(dl: Iterable[Any]) -> dict[Shapes, int]:
    """Read all batches of a data loader, then print and return how often each shape occurs.

    Operations on a batch are compiled for each new combination of shapes. Batches are tensors, or
    lists, tuples and mappings of tensors. The result maps the shapes of the tensors in a batch to
    the number of batches with these shapes, starting with the most frequent ones. Raises
    AssertionError if `torch.distributed` is in use, because each process then sees only part of the
    data.
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
    """Record the modules and input shapes that cause compilations, and return the model.

    The model gets three new methods:

    ``report()``
        Prints a table of input shapes, and returns it as a list of records with the fields
        ``shapes``, ``calls`` and ``compilations``. Compilations are attributed to the preceding
        call, including those in the backward pass and the optimizer step.
    ``raw_logs()``
        Returns one line of text per module call.
    ``analyse_dynamicity()``
        Prints the compilations per step and module, and the totals per module, and writes the two
        tables to ``<csv_out>_1.csv`` and ``<csv_out>_2.csv``.

    Recorded operations are executed at the end of each module call, so that lazy mode compiles them
    at that point. `mdlname` is the model's name in the tables. `waittime` has no effect, because
    compilations finish before the call returns. Raises AssertionError if `torch.distributed` is in
    use.
    """
    refuse_several_processes()
    return watch(model, mdlname, csv_out)


def refuse_several_processes() -> None:
    """Raise AssertionError if `torch.distributed` is in use."""
    distributed = torch.distributed
    assert not (distributed.is_available() and distributed.is_initialized()), (
        "Expected 1x run, but torch being used in distributed fashion"
    )
