"""DataLoader wrapper that yields batches of constant shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from habana_frameworks.torch.utils.experimental._batches import Path, mapped, samples_of, tensors_of

import torch


class const_shape_dataloader:
    """Data loader that pads batches to constant shapes, so that each graph is only compiled once.

    The constructor reads all batches of `dataloader` to determine the largest size of each
    dimension. Each tensor is then padded at the end to these sizes. If the last batch is smaller,
    it is dropped, because padded samples would change the loss.

    Parameters
    ----------
    dataloader : iterable
        The data loader to wrap; it is iterated over in each epoch. Batches are tensors, or lists,
        tuples and mappings of tensors.
    maxlen : int, optional
        Size to pad to, instead of the largest size in the batches, for each dimension that varies
        between batches (except the first dimension).
    pad_value : number or mapping
        Padding value. A mapping contains a value for each batch key, such as ``{"labels": -100}``;
        other keys use 0.

    Raises
    ------
    TypeError
        `dataloader` is an iterator, which can only be read once.
    ValueError
        A batch before the last one has fewer samples, the number of dimensions of a tensor changes,
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
                f"A {type(dataloader).__name__} can only be read once; pass the data loader itself."
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
            raise ValueError("The data loader returned no batch that contains tensors.")
        self._samples = max(samples)
        for number, count in enumerate(samples[:-1]):
            if count < self._samples:
                raise ValueError(
                    f"Batch {number} has {count} samples, but other batches have {self._samples}, "
                    "and only the last batch may be smaller; use a fixed batch size."
                )
        self._length = samples.count(self._samples)
        if maxlen is not None:
            self._widen(maxlen)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataloader:
            if samples_of(batch) >= self._samples:
                self._measure(batch)  # shuffling may yield larger batches in later epochs
                yield mapped(batch, self._padded)

    def _measure(self, batch: Any) -> None:
        for path, tensor in tensors_of(batch):
            sizes = self._sizes.setdefault(path, list(tensor.shape))
            if len(sizes) != tensor.dim():
                raise ValueError(
                    f"A tensor has {len(sizes)} dimensions in one batch and {tensor.dim()} "
                    "dimensions in another batch, which padding cannot fix."
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
                        f"maxlen={maxlen} is too small for a batch with {sizes[dim]} elements in "
                        f"dimension {dim}; truncate the batch, or pass a larger maxlen."
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
