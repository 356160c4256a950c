"""Training with varying input shapes: one forward and one backward graph per kind of input."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections import Counter
from collections.abc import Hashable
from typing import Any

from habana_frameworks.torch.hpu.graphs._cache import CacheStatistics
from habana_frameworks.torch.hpu.graphs._capture import is_current_stream_capturing
from habana_frameworks.torch.hpu.graphs._graphed_callables import (
    TrainingGraphs,
    without_tensor_cache,
)
from habana_frameworks.torch.hpu.graphs._inputs import check_device, fixed_copy, tensors_of

import torch


class ModuleCacher:
    """Captures and replays a model's forward and backward passes for each kind of input.

    ``ModuleCacher(max_graphs=10)(model)`` returns the model; `max_graphs` is the maximum number of
    kinds of input to capture, as defined by `input_key`. Graphs are only used for training. In
    evaluation mode, without gradients, and in eager mode, the original model runs. Apply it to a
    model before wrapping the model in DistributedDataParallel. As with `wrap_in_hpu_graph`, pass
    values that change as separate arguments, not inside an object that contains tensors.
    """

    def __init__(self, max_graphs: int = 10) -> None:
        if max_graphs < 1:
            raise ValueError(f"max_graphs={max_graphs} is too small; use at least 1.")
        self.max_graphs = max_graphs

    def __call__(
        self,
        model: torch.nn.Module,
        use_lfu: bool = False,
        inplace: bool = True,
        allow_unused_input: bool = False,
        asynchronous: bool = False,
        have_grad_accumulation: bool = False,
        log_frequency: int = 100,
        verbose: bool = False,
        disable_tensor_cache: bool = False,
        dry_run: bool = False,
    ) -> torch.nn.Module:
        """Wrap a model (in place, by default) and return it.

        The model gets the methods ``set_iteration_count(n)``, ``capture_start()``,
        ``capture_end()`` and ``is_hpugraph_tracing()``. `verbose` prints the number of replays and
        captures every `log_frequency` calls.

        Parameters
        ----------
        model : Module
            Its forward must not have ``*args`` or positional-only arguments.
        use_lfu : bool
            If there are already `max_graphs` graphs, replace the least frequently used one. If
            False, new kinds of input then run without a graph.
        allow_unused_input : bool
            Whether to accept inputs and parameters that do not affect the outputs.
        asynchronous, disable_tensor_cache : bool
            See `HPUGraph.replay` and `make_graphed_callables`.
        have_grad_accumulation : bool
            Has no effect, because gradients always accumulate correctly.
        dry_run : bool
            This option and PT_HPUGRAPH_ENABLE_DRY_RUN have no effect. A capture never executes the
            operations, so the first call executes them only once.

        Raises
        ------
        TypeError
            The model's forward has positional-only arguments or ``*args``.
        RuntimeError
            Raised by calls in training if an input is not on the device, or if its dtype differs
            from that of the captured input with the same shape.
        """
        model = model if inplace else copy.deepcopy(model)
        statistics = CacheStatistics(type(model).__name__, verbose, log_frequency)
        options = {
            "allow_unused_input": allow_unused_input,
            "disable_tensor_cache": without_tensor_cache(disable_tensor_cache),
        }
        cache = _TrainingCache(model, self.max_graphs, use_lfu, options, statistics)
        model.forward = functools.wraps(cache.original)(
            lambda *args, **kwargs: cache(*args, **kwargs)
        )
        model.set_iteration_count = cache.set_iteration_count
        model.capture_start = cache.capture_start
        model.capture_end = cache.capture_end
        model.is_hpugraph_tracing = cache.is_tracing
        return model


class _TrainingCache:
    """The graphs of a model, keyed by kind of input."""

    def __init__(
        self,
        model: torch.nn.Module,
        max_graphs: int,
        use_lfu: bool,
        options: dict[str, bool],
        statistics: CacheStatistics,
    ) -> None:
        self.original = model.forward
        self._signature = _named_arguments(model.forward, type(model).__name__)
        self._model, self._max_graphs, self._use_lfu = model, max_graphs, use_lfu
        self._options = options
        self._statistics = statistics
        self._captured: dict[Hashable, TrainingGraphs] = {}
        self._uses: Counter[Hashable] = Counter()
        self._capturing_allowed = True
        self.iteration = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._uses_graphs():
            return self.original(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        inputs = self._statistics.key_of(arguments)
        if inputs is None:
            return self.original(*args, **kwargs)
        check_device(tensors_of(arguments))
        parameters = list(self._model.parameters())
        surface = (*tensors_of(arguments), *parameters)
        key = (inputs, tuple(each.requires_grad for each in surface))
        captured = self._captured.get(key)
        if captured is None and not self._has_room():
            self._statistics.count("ungraphed")
            return self.original(*args, **kwargs)
        self._statistics.count("hits" if captured else "misses")
        if captured is None:
            captured = self._captured[key] = self._capture(arguments, parameters)
        self._uses[key] += 1
        return captured(tensors_of(arguments), parameters)

    def _uses_graphs(self) -> bool:
        return (
            self._model.training
            and torch.is_grad_enabled()
            and os.environ.get("PT_HPU_LAZY_MODE") == "1"
            and not is_current_stream_capturing()
        )

    def _has_room(self) -> bool:
        if not self._capturing_allowed:
            return False
        if len(self._captured) < self._max_graphs:
            return True
        if self._use_lfu:
            least = min(self._captured, key=lambda key: self._uses[key])
            self._captured.pop(least).reset()
            del self._uses[least]
        return self._use_lfu

    def _capture(self, arguments: dict[str, Any], parameters: list[Any]) -> TrainingGraphs:
        own = fixed_copy(dict(arguments))
        bound = inspect.BoundArguments(self._signature, own)
        return TrainingGraphs(
            lambda: self.original(*bound.args, **bound.kwargs),
            tensors_of(own),
            parameters,
            dry_run=True,
            **self._options,
        )

    def set_iteration_count(self, count: int) -> None:
        """Set the number of the current iteration."""
        self.iteration = count

    def capture_start(self) -> None:
        """Start capturing new kinds of input, which is the default."""
        self._capturing_allowed = True

    def capture_end(self) -> None:
        """Stop capturing new kinds of input, which then run without a graph."""
        self._capturing_allowed = False

    def is_tracing(self) -> bool:
        """Return whether new kinds of input are captured."""
        return self._capturing_allowed


def _named_arguments(forward: Any, name: str) -> inspect.Signature:
    signature = inspect.signature(forward)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(
                f"{name}.forward has the argument {parameter}, which cannot be passed by name; "
                "ModuleCacher requires named arguments."
            )
    return signature
