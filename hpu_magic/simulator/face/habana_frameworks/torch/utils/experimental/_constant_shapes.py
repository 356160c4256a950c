"""Data loader that yields batches of constant shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from habana_frameworks.torch.utils.experimental._batches import Path, mapped, samples_of, tensors_of

import torch


class const_shape_dataloader:
    """Data loader that yields batches of constant shapes, so that each graph is compiled only once.

    It reads all batches of `dataloader` to find the largest size of each dimension, and then pads
    the end of each tensor to these sizes. If the last batch has fewer samples, it is dropped,
    because padded samples would change the loss.

    Parameters
    ----------
    dataloader : iterable
        Iterated over again in each epoch. Batches are tensors, or lists, tuples and mappings of
        tensors.
    maxlen : int, optional
        Size of every dimension after the first whose size varies between batches; used instead of
        the largest size in the batches.
    pad_value : number or mapping
        Padding value. A mapping contains values by batch key, for example ``{"labels": -100}``;
        other keys use 0.

    Raises
    ------
    TypeError
        `dataloader` can be read only once.
    ValueError
        A batch other than the last has fewer samples, the number of dimensions of a tensor changes,
        no batch contains tensors, or a batch is longer than `maxlen`.
    """

    def __init__(
        self,
        dataloader: Iterable[Any],
        maxlen: int | None = None,
        *,
        pad_value: float | Mapping[str, float] = 0,
    ) -> None:
        if isinstance(dataloader, Iterator):
            raise TypeError(
                f"A {type(dataloader).__name__} can be read only once; pass the loader itself."
            )
        self.dataloader = dataloader
        self._pad_value = pad_value
        self._sizes: dict[Path, list[int]] = {}
        self._smallest: dict[Path, list[int]] = {}
        samples = []
        for batch in dataloader:
            self._measure(batch)
            samples.append(samples_of(batch))
        if not self._sizes:
            raise ValueError("The loader returned no batch with tensors.")
        self._samples = max(samples)
        for number, count in enumerate(samples[:-1]):
            if count < self._samples:
                raise ValueError(
                    f"Batch {number} has {count} samples, but others have {self._samples}, and "
                    "only the last batch may have fewer; use a fixed batch size."
                )
        self._length = samples.count(self._samples)
        if maxlen is not None:
            self._widen(maxlen)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataloader:
            if samples_of(batch) >= self._samples:
                self._measure(batch)  # a shuffled loader may later yield larger batches
                yield mapped(batch, self._padded)

    def _measure(self, batch: Any) -> None:
        for path, tensor in tensors_of(batch):
            sizes = self._sizes.setdefault(path, list(tensor.shape))
            if len(sizes) != tensor.dim():
                raise ValueError(
                    f"A tensor has {len(sizes)} dimensions in one batch and {tensor.dim()} in "
                    "another; padding cannot make them equal."
                )
            sizes[:] = map(max, sizes, tensor.shape)
            smallest = self._smallest.setdefault(path, list(tensor.shape))
            smallest[:] = map(min, smallest, tensor.shape)

    def _widen(self, maxlen: int) -> None:
        for path, sizes in self._sizes.items():
            for dim in range(1, len(sizes)):
                if sizes[dim] == self._smallest[path][dim]:
                    continue
                if sizes[dim] > maxlen:
                    raise ValueError(
                        f"maxlen={maxlen} is too short for a batch with {sizes[dim]} elements in "
                        f"dimension {dim}; truncate it, or pass a larger maxlen."
                    )
                sizes[dim] = maxlen

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
