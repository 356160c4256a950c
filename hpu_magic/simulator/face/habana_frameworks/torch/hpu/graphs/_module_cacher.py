"""Training with inputs of varying shape: graphs of forward and backward for each kind."""

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
    """Lets a model capture forward and backward for each kind of input, and replay them.

    ``ModuleCacher(max_graphs=10)(model)`` returns the model. Graphs serve training only: in
    evaluation, without gradients and in eager mode the model runs as it is. Wrap a model
    before DistributedDataParallel, not after. As with `wrap_in_hpu_graph`, pass what changes in an
    object that holds tensors as an argument of its own.

    Parameters
    ----------
    max_graphs : int
        How many kinds of input to keep graphs for; see `input_key` for what makes a kind.
    """

    def __init__(self, max_graphs: int = 10) -> None:
        if max_graphs < 1:
            raise ValueError(f"max_graphs={max_graphs} keeps no graph; write 1 or more.")
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
        """Wrap a model.

        Parameters
        ----------
        model : Module
            Its forward must name its arguments: ``*args`` and positional-only ones are refused.
        use_lfu : bool
            With `max_graphs` kinds captured, give up the one used least; otherwise further
            kinds run without a graph.
        inplace : bool
            Change the model itself, not a copy.
        allow_unused_input : bool
            Accept inputs and parameters that the outputs do not depend on.
        asynchronous : bool
            See `HPUGraph.replay`.
        have_grad_accumulation : bool
            Accepted; gradients accumulate correctly either way.
        log_frequency, verbose : int, bool
            Print how often graphs were found, every `log_frequency` calls.
        disable_tensor_cache : bool
            See `make_graphed_callables`.
        dry_run : bool
            Accepted; capturing only records either way, so that the first call, too, runs once.
            Hence PT_HPUGRAPH_ENABLE_DRY_RUN, which switches it on, changes nothing here.

        Returns
        -------
        Module
            The model, with ``set_iteration_count(n)``, ``capture_start()``, ``capture_end()``
            and ``is_hpugraph_tracing``.

        Raises
        ------
        TypeError
            The model's forward has arguments without a name.
        RuntimeError
            From calls in training: an input is not on the device, or differs in dtype from the
            one captured with its shape.
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
    """The graphs of one model, by kind of input."""

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
        if not self._serves():
            return self.original(*args, **kwargs)
        arguments = self._signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        named = arguments.arguments
        inputs = self._statistics.key_of(named)
        if inputs is None:
            return self.original(*args, **kwargs)
        check_device(tensors_of(named))
        parameters = list(self._model.parameters())
        surface = (*tensors_of(named), *parameters)
        key = (inputs, tuple(each.requires_grad for each in surface))
        captured = self._captured.get(key)
        if captured is None and not self._has_room():
            self._statistics.count("ungraphed")
            return self.original(*args, **kwargs)
        self._statistics.count("hits" if captured else "misses")
        if captured is None:
            captured = self._captured[key] = self._capture(named, parameters)
        self._uses[key] += 1
        return captured(tensors_of(named), parameters)

    def _serves(self) -> bool:
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

    def _capture(self, named: dict[str, Any], parameters: list[Any]) -> TrainingGraphs:
        own = fixed_copy(dict(named))
        bound = inspect.BoundArguments(self._signature, own)
        return TrainingGraphs(
            lambda: self.original(*bound.args, **bound.kwargs),
            tensors_of(own),
            parameters,
            dry_run=True,
            **self._options,
        )

    def set_iteration_count(self, count: int) -> None:
        """Set the number of the present iteration."""
        self.iteration = count

    def capture_start(self) -> None:
        """Capture graphs for new kinds of input from now on, as at the beginning."""
        self._capturing_allowed = True

    def capture_end(self) -> None:
        """Run new kinds of input without a graph from now on."""
        self._capturing_allowed = False

    def is_tracing(self) -> bool:
        """Tell whether new kinds of input are captured."""
        return self._capturing_allowed


def _named_arguments(forward: Any, name: str) -> inspect.Signature:
    signature = inspect.signature(forward)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(
                f"{name}.forward takes {parameter} without a name: ModuleCacher finds graphs by "
                "argument name; give the argument one."
            )
    return signature
