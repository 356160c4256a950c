"""Counts the samples that a script processes, and measures how long it waits for them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import BatchSampler, dataloader

from hpu_magic.simulator.dry_run.labels import Labels
from hpu_magic.simulator.dry_run.nests import tensors

_TOKENS = (torch.int64, torch.int32)


@dataclass(frozen=True)
class Loader:
    """The properties of a `DataLoader`.

    Attributes
    ----------
    workers : int
        Number of worker processes.
    pinned, persistent : bool
        Whether batches are in pinned memory, and whether workers are kept between epochs.
    length : int or None
        Number of batches per epoch on this rank; None if it is unknown.
    ranks : int or None
        Number of ranks among which the sampler divides the samples; None if it does not divide
        them.
    last : int
        Number of samples in the last batch of an epoch; 0 if the number is unknown or the same as
        in the other batches.
    """

    workers: int
    pinned: bool
    persistent: bool
    length: int | None
    ranks: int | None
    last: int


@dataclass(frozen=True)
class Count:
    """The samples and batches that this rank has processed in a step.

    Attributes
    ----------
    samples, tokens : int
        Number of samples and tokens, including padding.
    source : str
        How samples were counted.
    batches : int
        Number of batches that loaders returned.
    waited : float
        Seconds that this process waited for batches.
    loader : Loader, optional
        The loader that returned the last of these batches.
    """

    samples: int = 0
    tokens: int = 0
    source: str = ""
    batches: int = 0
    waited: float = 0.0
    loader: Loader | None = None


class Batches:
    """Observes loaders, and the inputs of modules in scripts without loaders."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._loaded = Count()
        self._inputs = Count()
        self._model: int | None = None

    def install(self) -> None:
        """Observe all loaders."""
        kind: Any = dataloader._BaseDataLoaderIter
        original = kind.__next__

        def load(iterator: Any) -> Any:
            begin = time.perf_counter()
            with self._labels.during("data"):
                batch = original(iterator)
            waited = time.perf_counter() - begin
            self._add(iterator, batch, waited)
            return batch

        kind.__next__ = load

    def take(self) -> Count:
        """Return the count since the last call."""
        found = self._loaded if self._loaded.batches else self._inputs
        self._loaded, self._inputs, self._model = Count(), Count(), None
        return found

    def root_runs(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Count the inputs of the first outermost module of a step that has parameters."""
        if self._model is None and next(module.parameters(), None) is not None:
            self._model = id(module)
        inputs = next(tensors((args, kwargs)), None)
        if self._model == id(module) and inputs is not None and inputs.dim():
            source = f"the leading dimension of the inputs of {type(module).__name__}"
            self._inputs = replace(
                self._inputs,
                samples=self._inputs.samples + inputs.shape[0],
                tokens=self._inputs.tokens + tokens_of((args, kwargs)),
                source=source,
            )

    def _add(self, iterator: Any, batch: Any, waited: float) -> None:
        samples, source = _samples_of(iterator, batch)
        before = self._loaded
        self._loaded = Count(
            before.samples + samples,
            before.tokens + tokens_of(batch),
            source,
            before.batches + 1,
            before.waited + waited,
            _described(iterator),
        )


def _samples_of(iterator: Any, batch: Any) -> tuple[int, str]:
    """Return the number of samples in a batch, and how it was counted."""
    size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
    if isinstance(size, int):
        return size, "the batch size of the DataLoader"
    first = next(tensors(batch), None)
    if first is None or not first.dim():
        return 0, ""
    return first.shape[0], "the leading dimension of the DataLoader's batches"


def _described(iterator: Any) -> Loader:
    try:
        length: int | None = len(iterator)
    except (TypeError, NotImplementedError):
        length = None
    samplers = getattr(iterator, "_index_sampler", None)
    ranks = None
    for _ in range(3):  # samplers may be nested
        for name in ("num_replicas", "num_processes"):
            ranks = ranks or getattr(samplers, name, None)
        inner = getattr(samplers, "sampler", None)
        samplers = getattr(samplers, "batch_sampler", None) if inner is None else inner
    return Loader(
        getattr(iterator, "_num_workers", 0),
        bool(getattr(iterator, "_pin_memory", False)),
        bool(getattr(iterator, "_persistent_workers", False)),
        length,
        ranks if isinstance(ranks, int) else None,
        _last_batch(getattr(iterator, "_index_sampler", None)),
    )


def _last_batch(batches: Any) -> int:
    """Return the number of samples in the last batch if it is smaller than the others, or 0."""
    if type(batches) is not BatchSampler or batches.drop_last:
        return 0  # other classes may divide samples in any way
    try:
        return len(batches.sampler) % batches.batch_size  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return 0


def tokens_of(value: Any) -> int:
    """Return the number of tokens in inputs or in a batch, as `hpu_magic.estimate` counts them.

    Tokens are the elements of an integer tensor with at least two dimensions: the first tensor, or
    a tensor whose name ends with ``ids``.
    """
    first = next(tensors(value), None)
    for each in (first, *_ids(value)):
        if each is not None and each.dtype in _TOKENS and each.dim() > 1:
            return each.numel()
    return 0


def _ids(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if str(name).endswith("ids"):
                yield from tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _ids(each)


def ranks_of(loader: Loader | None) -> tuple[int, bool]:
    """Return the number of ranks that load different batches, and whether that is certain."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if loader is not None and loader.ranks:
        return loader.ranks, True
    return world, world == 1
