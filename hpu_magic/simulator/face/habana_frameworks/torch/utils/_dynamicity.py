"""Finding inputs whose shapes change, each of which costs a compilation, and evening them out."""

from __future__ import annotations

import collections
import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch
from hpu_magic.simulator import engine

from .. import hpu

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the tensors of a batch, in order."""
Path = tuple[Any, ...]
"""Keys and indices that lead to a tensor of a batch."""


class CallRecord(NamedTuple):
    """Calls of a model with inputs of the same shapes, and the graphs compiled from them on."""

    shapes: Shapes
    calls: int
    compilations: int


def data_dynamicity(dataloader: Iterable[Any]) -> dict[Shapes, int]:
    """Read all batches of a loader, print how often each combination of shapes comes, return it.

    More than one combination means more than one compilation of everything that the batches
    go through. Batches are tensors, or lists, tuples and mappings that hold tensors.

    Returns
    -------
    dict
        Shapes of a batch's tensors to the number of such batches, the most frequent first.
    """
    counts = collections.Counter(_shapes(batch) for batch in dataloader)
    by_frequency = dict(counts.most_common())
    _print_table(("batches",), [((count,), shapes) for shapes, count in by_frequency.items()])
    return by_frequency


def detect_recompilation_auto_model(model: torch.nn.Module) -> torch.nn.Module:
    """Let `model` tell which input shapes made graphs compile, and return it.

    It is the same module, changed in place: its ``forward`` notes the shapes, and it gets a
    method ``report()``, which after some steps prints a table of the input shapes and returns
    it as a list with the fields ``shapes``, ``calls`` and ``compilations``. A call answers for
    every graph compiled from its start to that of the next one, and so for its backward pass
    and for the optimizer's step.
    """
    watched = _WatchedForward(model.forward)
    model.forward = watched
    model.report = watched.report  # type: ignore[assignment]
    return model


class _WatchedForward:
    # An object, and not a closure: a copy of the model gets a copy that calls the copy.
    def __init__(self, forward: Callable[..., Any]) -> None:
        functools.update_wrapper(self, forward)
        self._forward = forward
        self._calls: collections.Counter[Shapes] = collections.Counter()
        self._compilations: collections.Counter[Shapes] = collections.Counter()
        self._last: Shapes | None = None
        self._compiled_before = 0

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the model's own forward and note the shapes of its inputs."""
        self._end_last()
        self._last = _shapes((inputs, named))
        self._calls[self._last] += 1
        return self._forward(*inputs, **named)

    def report(self) -> list[CallRecord]:
        """Execute what is recorded; print and return calls and compilations by input shapes."""
        hpu.synchronize()
        self._end_last()
        records = [
            CallRecord(shapes, calls, self._compilations[shapes])
            for shapes, calls in self._calls.most_common()
        ]
        _print_table(
            ("calls", "compilations"),
            [((record.calls, record.compilations), record.shapes) for record in records],
        )
        return records

    def _end_last(self) -> None:
        compiled = engine.load().counters()["graph_compilation"]["count"]
        if self._last is not None:
            self._compilations[self._last] += compiled - self._compiled_before
        self._compiled_before = compiled


class const_shape_dataloader:
    """A loader whose batches all have the same shapes, so that each graph compiles once.

    Reads all batches of `dataloader` once to find the largest size of every dimension; from
    then on tensors are padded behind their data to these sizes, and a last batch with fewer
    samples is left out, because samples made of padding would change a loss.

    Parameters
    ----------
    dataloader : iterable
        Read again at each iteration. Batches are tensors, or lists, tuples and mappings that
        hold tensors.
    pad_value : number or mapping
        What to pad with; a mapping gives the value for each name in a batch that is a mapping,
        such as ``{"labels": -100}``, and 0 is used for all others.

    Raises
    ------
    TypeError
        `dataloader` can be read only once.
    ValueError
        Another batch than the last has fewer samples, a tensor changes its number of dimensions,
        or there are no batches with tensors.
    """

    def __init__(
        self, dataloader: Iterable[Any], pad_value: float | Mapping[str, float] = 0
    ) -> None:
        if isinstance(dataloader, Iterator):
            raise TypeError(
                f"A {type(dataloader).__name__} can be read only once; pass the loader itself."
            )
        self.dataloader = dataloader
        self._pad_value = pad_value
        self._sizes: dict[Path, list[int]] = {}
        samples = []
        for batch in dataloader:
            self._measure(batch)
            samples.append(_samples(batch))
        if not self._sizes:
            raise ValueError("The loader gave no batch with tensors.")
        self._samples = max(samples)
        for number, count in enumerate(samples[:-1]):
            if count < self._samples:
                raise ValueError(
                    f"Batch {number} has {count} samples where others have {self._samples}; "
                    "only the last batch may have fewer. Use a fixed batch size."
                )
        self._length = samples.count(self._samples)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataloader:
            if _samples(batch) >= self._samples:
                self._measure(batch)  # a shuffled loader may come to larger ones later
                yield _mapped(batch, self._padded)

    def _measure(self, batch: Any) -> None:
        for path, tensor in _tensors(batch):
            sizes = self._sizes.setdefault(path, list(tensor.shape))
            if len(sizes) != tensor.dim():
                raise ValueError(
                    f"A tensor of the batches has {len(sizes)} dimensions in one and "
                    f"{tensor.dim()} in another; padding cannot make them equal."
                )
            sizes[:] = map(max, sizes, tensor.shape)

    def _padded(self, path: Path, tensor: torch.Tensor) -> torch.Tensor:
        sizes = self._sizes[path]
        if list(tensor.shape) == sizes:
            return tensor
        value = self._pad_value
        if isinstance(value, Mapping):
            value = next((value[key] for key in reversed(path) if key in value), 0)
        padded = tensor.new_full(sizes, value)
        padded[tuple(map(slice, tensor.shape))] = tensor
        return padded


def _mapped(obj: Any, change: Callable[[Path, torch.Tensor], Any], path: Path = ()) -> Any:
    """Return the same structure with `change` called for each tensor."""
    if isinstance(obj, torch.Tensor):
        return change(path, obj)
    if isinstance(obj, Mapping):
        fresh = copy.copy(obj) if isinstance(obj, MutableMapping) else dict(obj)
        for key, value in obj.items():
            fresh[key] = _mapped(value, change, (*path, key))
        return fresh
    if isinstance(obj, (list, tuple)):
        items = [_mapped(value, change, (*path, place)) for place, value in enumerate(obj)]
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    return obj


def _tensors(obj: Any) -> list[tuple[Path, torch.Tensor]]:
    found: list[tuple[Path, torch.Tensor]] = []
    _mapped(obj, lambda path, tensor: found.append((path, tensor)))
    return found


def _shapes(obj: Any) -> Shapes:
    return tuple(tuple(tensor.shape) for _, tensor in _tensors(obj))


def _samples(batch: Any) -> int:
    """Size of the first dimension of the first tensor that has one; 0 without any."""
    return next((tensor.shape[0] for _, tensor in _tensors(batch) if tensor.dim()), 0)


def _print_table(heads: tuple[str, ...], rows: list[tuple[tuple[int, ...], Shapes]]) -> None:
    print("  ".join([*heads, "shapes"]))
    for numbers, shapes in rows:
        cells = [f"{number:>{len(head)}}" for head, number in zip(heads, numbers, strict=True)]
        print("  ".join([*cells, ", ".join(map(str, map(list, shapes)))]))
