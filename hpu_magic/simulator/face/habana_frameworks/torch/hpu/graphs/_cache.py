"""Modules and functions that capture one graph for each kind of input, for inference."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch.hpu.graphs._capture import HPUGraph, WrappedGraph, graph, require_lazy
from habana_frameworks.torch.hpu.graphs._graphed_callables import without_tensor_cache
from habana_frameworks.torch.hpu.graphs._inputs import (
    check,
    check_device,
    fixed_copy,
    tensors_of,
    tensors_within,
)
from habana_frameworks.torch.hpu.graphs._keys import NoKeyError, input_key

import torch
from hpu_magic.simulator import engine


@dataclass
class CachedParams:
    """One captured graph with the tensors it reads and writes."""

    graph_inputs: list[torch.Tensor]
    graph_outputs: Any
    graph: HPUGraph
    cleared: bool = False

    def free_inputs(self) -> None:
        """Free the memory of the inputs until the next replay, but what is an output too."""
        self.cleared = True
        returned = tensors_within(self.graph_outputs)
        outputs = {tensor.untyped_storage()._cdata for tensor in returned}
        for tensor in self.graph_inputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in outputs:
                storage.resize_(0)

    def allocate_inputs(self) -> None:
        """Give the inputs memory again."""
        for tensor in self.graph_inputs if self.cleared else ():
            storage = tensor.untyped_storage()
            if storage.nbytes() == 0:  # and not kept, as an output
                storage.resize_(_bytes_spanned(tensor))
        self.cleared = False


def _bytes_spanned(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


class CacheStatistics:
    """Counts how often a graph was found, and prints it now and then if `verbose`."""

    def __init__(self, name: str, verbose: bool, log_frequency: int) -> None:
        self.hits = self.misses = self.ungraphed = 0
        self._name, self._verbose, self._frequency = name, verbose, max(1, log_frequency)
        self._warned = False

    def key_of(self, inputs: Any) -> Hashable | None:
        """Return the key of a call's inputs; None, counted and told once, if they have none."""
        try:
            return input_key(inputs)
        except NoKeyError as error:
            self.count("ungraphed")
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._name} runs without HPU graphs for some of its inputs: {error}; pass "
                    "tensors, plain values, or containers of them.",
                    stacklevel=4,
                )
            return None

    def count(self, outcome: str) -> None:
        """Add one to ``hits``, ``misses`` or ``ungraphed``."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        calls = self.hits + self.misses + self.ungraphed
        if self._verbose and calls % self._frequency == 0:
            print(
                f"HPU Graphs of {self._name}: {calls} calls, {self.hits} replayed, "
                f"{self.misses} captured, {self.ungraphed} run without a graph"
            )


class _CachedForward:
    """A function that captures at the first call with a key, and replays at the others."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        asynchronous: bool,
        disable_tensor_cache: bool,
        dry_run: bool,
        max_graphs: int | None,
        verbose: bool,
        log_frequency: int,
    ) -> None:
        self._function = function
        self._asynchronous, self._max_graphs = asynchronous, max_graphs
        self._cacheless = without_tensor_cache(disable_tensor_cache)
        self._dry_run = dry_run or self._cacheless
        self.cached: dict[Hashable, CachedParams] = {}
        self.statistics = CacheStatistics(name, verbose, log_frequency)

    def __call__(
        self,
        *args: Any,
        bypass_hpu_graphs: bool = False,
        warmup_mode: bool = False,
        cache_tensors_list: Any = None,
        **kwargs: Any,
    ) -> Any:
        if bypass_hpu_graphs:
            return self._function(*args, **kwargs)
        key = self.statistics.key_of((args, kwargs))
        if key is None:
            return self._function(*args, **kwargs)
        found = self.cached.get(key)
        if found is not None:
            self.statistics.count("hits")
            return self._replay(found, tensors_of((args, kwargs)), warmup_mode)
        if self._max_graphs is not None and len(self.cached) >= self._max_graphs:
            self.statistics.count("ungraphed")
            return self._function(*args, **kwargs)
        check_device(tensors_of((args, kwargs)))
        self.statistics.count("misses")
        found = self.cached[key] = self._capture(args, kwargs)
        return found.graph_outputs

    def _capture(self, args: Any, kwargs: Any) -> CachedParams:
        own_args, own_kwargs = fixed_copy((args, kwargs))
        inputs = tensors_of((own_args, own_kwargs))
        captured = WrappedGraph()
        # In inference mode, the outputs could not be used outside of it.
        mode = torch.inference_mode(False), torch.no_grad()
        with mode[0], mode[1], graph(captured, dry_run=self._dry_run):
            captured.mark_user_inputs(inputs)
            outputs = self._function(*own_args, **own_kwargs)
            captured.mark_user_outputs(tensors_of(outputs))
        found = CachedParams(inputs, outputs, captured)
        if self._cacheless:
            captured.free_intermediates([*inputs, *tensors_within(outputs)])
        try:
            if self._dry_run:
                captured.replay(self._asynchronous)
        finally:
            if self._cacheless:
                found.free_inputs()
        return found

    def _replay(self, found: CachedParams, new: list[torch.Tensor], warmup_mode: bool) -> Any:
        if warmup_mode:
            engine.load().mark_step()
        else:
            check(found.graph_inputs, new)
            found.allocate_inputs()
            try:
                found.graph.replayV3(new, self._asynchronous)
            finally:
                if self._cacheless:
                    found.free_inputs()
        return found.graph_outputs

    def clear_cache(self) -> None:
        """Free every captured graph."""
        for found in self.cached.values():
            found.graph.reset()
        self.cached.clear()

    def clear_inputs(self) -> None:
        """Free the memory of the graphs' input tensors; the next call allocates it again."""
        for found in self.cached.values():
            found.free_inputs()


def wrap_in_hpu_graph(
    module: torch.nn.Module,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
    free_inplace: bool = False,
    verbose: bool = False,
    log_frequency: int = 100,
) -> torch.nn.Module:
    """Let a module capture a graph for each kind of input, and replay it. For inference.

    The outputs are the graph's own tensors: the next call with inputs of the same kind
    overwrites them; clone what you keep. See `input_key` for what makes a kind: an object that
    holds tensors makes one kind, so a replay does not see changes of its other attributes, nor
    another tensor in the place of one. Pass what changes as an argument of its own.

    Parameters
    ----------
    module : Module
        Changed in place: its forward takes the further arguments ``bypass_hpu_graphs`` (run
        without a graph) and ``warmup_mode`` (replay nothing), and the module gets
        ``clear_cache()`` and ``clear_inputs()``.
    asynchronous : bool
        See `HPUGraph.replay`.
    disable_tensor_cache : bool
        Keep nothing but the outputs between calls: inputs and intermediate results are freed
        with each replay, whose peak is then that of a run without a graph. Implies `dry_run`.
        ``PT_HPUGRAPH_DISABLE_TENSOR_CACHE=1`` switches it on for all.
    dry_run : bool
        Record without running, and run with the first replay.
    max_graphs : int, optional
        With so many captured, inputs of another kind run without a graph.
    free_inplace : bool
        Accepted without effect: the vendor documents the name and not what it does.
    verbose : bool
        Print how often graphs were found, every `log_frequency` calls.

    Returns
    -------
    Module
        The same module.

    Raises
    ------
    RuntimeError
        This process has loaded eager mode. Calls raise it for an input that is not on the
        device, or that differs in dtype from the one captured with its shape.
    """
    require_lazy()
    cache = _CachedForward(
        module.forward,
        type(module).__name__,
        asynchronous,
        disable_tensor_cache,
        dry_run,
        max_graphs,
        verbose,
        log_frequency,
    )
    module.forward = functools.wraps(module.forward)(lambda *args, **kwargs: cache(*args, **kwargs))
    module.clear_cache = cache.clear_cache
    module.clear_inputs = cache.clear_inputs
    return module


def wrap_in_hpu_graph_func(
    func: Callable[..., Any],
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
    max_graphs: int | None = None,
    free_inplace: bool = False,
    verbose: bool = False,
    log_frequency: int = 100,
) -> Callable[..., Any]:
    """Return a function that captures a graph for each kind of input, and replays it.

    Options as in `wrap_in_hpu_graph`; the result has ``clear_cache()`` and ``clear_inputs()``.
    """
    require_lazy()
    cache = _CachedForward(
        func,
        getattr(func, "__name__", type(func).__name__),
        asynchronous,
        disable_tensor_cache,
        dry_run,
        max_graphs,
        verbose,
        log_frequency,
    )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return cache(*args, **kwargs)

    wrapped.clear_cache = cache.clear_cache  # type: ignore[attr-defined]
    wrapped.clear_inputs = cache.clear_inputs  # type: ignore[attr-defined]
    return wrapped
