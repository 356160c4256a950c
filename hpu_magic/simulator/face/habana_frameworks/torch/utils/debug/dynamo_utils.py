"""Count the operators that ``hpu_backend`` compiles, and those that run in eager mode."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_analyzers: list[FxGraphAnalyzer] = []


@dataclass
class OpCount:
    """The number of compiled calls and eager-mode calls to an operator in a graph."""

    graph_count: int = 0
    eager_count: int = 0

    def __str__(self) -> str:
        return f"{{graph_count = {self.graph_count}, eager_count = {self.eager_count}}}"


class FxGraphAnalyzer:
    """Context manager that records the graphs that ``hpu_backend`` compiles; it can be nested.

    In the simulator, each graph is a single partition: either all of its operators are compiled, or
    all of them run in eager mode. In-place operators are counted in their functional form.

    Parameters
    ----------
    reset_dynamo : bool
        Whether to reset Dynamo on entry, so that all graphs are recompiled.
    capture_non_hpu_output : bool
        Whether to also count operators whose outputs are not on the device.
    """

    def __init__(self, reset_dynamo: bool = False, capture_non_hpu_output: bool = False) -> None:
        self._reset_dynamo = reset_dynamo
        self._captures_all = capture_non_hpu_output
        self._summaries: list[dict[str, OpCount]] = []
        self._partitions = 0

    def __enter__(self) -> FxGraphAnalyzer:
        if self._reset_dynamo:
            torch._dynamo.reset()
        _analyzers.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _analyzers.remove(self)
        for number, summary in enumerate(self._summaries):
            eager = {name: str(count) for name, count in summary.items() if count.eager_count}
            if eager:
                logging.getLogger("habana_frameworks.torch").critical(
                    "Graph %d has operators in eager mode: %s", number, eager
                )

    def get_ops_summary(self) -> list[dict[str, OpCount]]:
        """Return each graph's operators by name, for example ``torch.ops.aten.add.Tensor``."""
        return self._summaries

    def get_partition_num(self) -> int:
        """Return the number of compiled partitions."""
        return self._partitions

    def _note(self, operators: Mapping[str, tuple[int, int]], compiled: bool) -> None:
        summary = {}
        for name, counts in operators.items():
            count = counts[1 if self._captures_all else 0]
            if count:
                summary[name] = OpCount(count, 0) if compiled else OpCount(0, count)
        self._summaries.append(summary)
        self._partitions += bool(compiled and summary)


def operators_to_note(graph: torch.fx.Graph) -> dict[str, tuple[int, int]] | None:
    """Return a graph's operator counts if an analyzer is active; call this before graph passes."""
    return operators_of(graph) if _analyzers else None


def note_graph(operators: Mapping[str, tuple[int, int]] | None, compiled: bool) -> None:
    """Record a graph in the active analyzers."""
    for analyzer in _analyzers if operators is not None else ():
        analyzer._note(operators, compiled)


def operators_of(graph: torch.fx.Graph) -> dict[str, tuple[int, int]]:
    """Return two counts per operator: calls with outputs on the device, and all calls."""
    operators: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            name = f"torch.ops.{node.target}"
            on_device, total = operators.get(name, (0, 0))
            operators[name] = (on_device + _on_device(node.meta.get("val")), total + 1)
    return operators


def _on_device(result: Any) -> bool:
    if isinstance(result, list | tuple):
        return any(_on_device(each) for each in result)
    return isinstance(result, torch.Tensor) and result.device.type == "hpu"
