"""Inference with one captured graph per kind of input, for modules and functions."""

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
    """A captured graph and the tensors that it reads and writes."""

    graph_inputs: list[torch.Tensor]
    graph_outputs: Any
    graph: HPUGraph
    cleared: bool = False

    def free_inputs(self) -> None:
        """Free the memory of all inputs that are not also outputs, until the next replay."""
        self.cleared = True
        outputs = {tensor.untyped_storage()._cdata for tensor in tensors_within(self.graph_outputs)}
        for tensor in self.graph_inputs:
            storage = tensor.untyped_storage()
            if storage._cdata not in outputs:
                storage.resize_(0)

    def allocate_inputs(self) -> None:
        """Allocate the memory of the inputs again, if it was freed."""
        for tensor in self.graph_inputs if self.cleared else ():
            storage = tensor.untyped_storage()
            if storage.nbytes() == 0:  # not an output
                storage.resize_(_bytes_spanned(tensor))
        self.cleared = False


def _bytes_spanned(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size()


class CacheStatistics:
    """Counts replays and captures, and prints them every `log_frequency` calls if `verbose`."""

    def __init__(self, name: str, verbose: bool, log_frequency: int) -> None:
        self.hits = self.misses = self.ungraphed = 0
        self._name, self._verbose, self._frequency = name, verbose, max(1, log_frequency)
        self._warned = False

    def key_of(self, inputs: Any) -> Hashable | None:
        """Return the key of a call's inputs. Return None and warn once if there is none."""
        try:
            return input_key(inputs)
        except NoKeyError as error:
            self.count("ungraphed")
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{self._name} does not use HPU Graphs for some inputs because {error}; pass "
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
    """A function that captures a graph on the first call for each key, and replays it later."""

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
        cached = self.cached.get(key)
        if cached is not None:
            self.statistics.count("hits")
            return self._replay(cached, tensors_of((args, kwargs)), warmup_mode)
        if self._max_graphs is not None and len(self.cached) >= self._max_graphs:
            self.statistics.count("ungraphed")
            return self._function(*args, **kwargs)
        check_device(tensors_of((args, kwargs)))
        self.statistics.count("misses")
        cached = self.cached[key] = self._capture(args, kwargs)
        return cached.graph_outputs

    def _capture(self, args: Any, kwargs: Any) -> CachedParams:
        own_args, own_kwargs = fixed_copy((args, kwargs))
        inputs = tensors_of((own_args, own_kwargs))
        captured = WrappedGraph()
        # Outputs that are created in inference mode cannot be used outside of it.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            graph(captured, dry_run=self._dry_run),
        ):
            captured.mark_user_inputs(inputs)
            outputs = self._function(*own_args, **own_kwargs)
            captured.mark_user_outputs(tensors_of(outputs))
        cached = CachedParams(inputs, outputs, captured)
        if self._cacheless:
            captured.free_intermediates([*inputs, *tensors_within(outputs)])
        try:
            if self._dry_run:
                captured.replay(self._asynchronous)
        finally:
            if self._cacheless:
                cached.free_inputs()
        return cached

    def _replay(self, cached: CachedParams, new: list[torch.Tensor], warmup_mode: bool) -> Any:
        if warmup_mode:
            engine.load().mark_step()
        else:
            check(cached.graph_inputs, new)
            cached.allocate_inputs()
            try:
                cached.graph.replayV3(new, self._asynchronous)
            finally:
                if self._cacheless:
                    cached.free_inputs()
        return cached.graph_outputs

    def clear_cache(self) -> None:
        """Free all captured graphs."""
        for cached in self.cached.values():
            cached.graph.reset()
        self.cached.clear()

    def clear_inputs(self) -> None:
        """Free the memory of the graphs' input tensors until the next call."""
        for cached in self.cached.values():
            cached.free_inputs()


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
    """Make a module capture and replay one graph per kind of input, for inference.

    The outputs belong to the graph, and the next call with the same kind of input overwrites them;
    clone outputs that you want to keep. `input_key` defines the kinds. An object that contains
    tensors is always treated as the same kind, so a replay ignores changes to its attributes and
    tensors; pass values that change as separate arguments.

    Parameters
    ----------
    module : Module
        Modified in place: its forward accepts the additional arguments ``bypass_hpu_graphs`` (run
        without a graph) and ``warmup_mode`` (skip the replay), and the module gets the methods
        ``clear_cache()`` and ``clear_inputs()``.
    asynchronous : bool
        See `HPUGraph.replay`.
    disable_tensor_cache : bool
        Keep only the outputs between calls: each replay frees inputs and intermediate results, so
        its peak memory is the same as without a graph. This option implies `dry_run`.
        ``PT_HPUGRAPH_DISABLE_TENSOR_CACHE=1`` enables it for all modules.
    dry_run : bool
        Capture the operations without executing them; the first replay executes them.
    max_graphs : int, optional
        Maximum number of graphs; additional kinds of input run without a graph.
    free_inplace : bool
        Has no effect, because the vendor does not document this option.
    verbose : bool
        Print the number of replays and captures every `log_frequency` calls.

    Raises
    ------
    RuntimeError
        The process is in eager mode. Calls also raise RuntimeError if an input is not on the
        device, or if its dtype differs from that of the captured input with the same shape.
    """
    forward = _cached(
        module.forward,
        type(module).__name__,
        asynchronous,
        disable_tensor_cache,
        dry_run,
        max_graphs,
        verbose,
        log_frequency,
    )
    module.forward = forward
    module.clear_cache, module.clear_inputs = forward.clear_cache, forward.clear_inputs
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
    """Return a function that captures and replays one graph per kind of input.

    See `wrap_in_hpu_graph` for the options. The returned function has the methods
    ``clear_cache()`` and ``clear_inputs()``.
    """
    return _cached(
        func,
        getattr(func, "__name__", type(func).__name__),
        asynchronous,
        disable_tensor_cache,
        dry_run,
        max_graphs,
        verbose,
        log_frequency,
    )


def _cached(function: Callable[..., Any], *options: Any) -> Callable[..., Any]:
    require_lazy()
    cache = _CachedForward(function, *options)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return cache(*args, **kwargs)

    wrapped.clear_cache, wrapped.clear_inputs = cache.clear_cache, cache.clear_inputs
    return wrapped
