"""Runs operators directly, compiled and in a replayed graph."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch import hpu

Results = torch.Tensor | tuple[torch.Tensor, ...]


def run(operator: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call an operator and wait until it is executed, also in lazy mode."""
    results = operator(*arguments, **keywords)
    htcore.mark_step()
    return results


def _all(results: Results) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def _assert_same(results: Results, expected: Results) -> None:
    """Compare types, shapes, devices and exact values."""
    for one, other in zip(_all(results), _all(expected), strict=True):
        assert (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        torch.testing.assert_close(one.cpu().float(), other.cpu().float(), rtol=0, atol=0)


def assert_compiles(function: Callable[..., Results], *samples: Sequence[torch.Tensor]) -> None:
    """Compare a compiled function with the plain one, for samples of several shapes."""
    compiled = torch.compile(function, backend="hpu_backend", fullgraph=True)
    for sample in samples:
        _assert_same(compiled(*sample), function(*sample))


def assert_replays(function: Callable[..., Results], *samples: Sequence[torch.Tensor]) -> None:
    """Compare a captured function with the plain one, for samples of the same shape."""
    inputs = [tensor.clone() for tensor in samples[0]]
    graph = hpu.HPUGraph()
    with hpu.stream(hpu.Stream()):
        graph.capture_begin()
        captured = function(*inputs)
        graph.capture_end()
    for sample in samples:
        for tensor, fresh in zip(inputs, sample, strict=True):
            tensor.copy_(fresh)
        graph.replay()
        _assert_same(captured, function(*sample))
