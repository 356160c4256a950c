"""Which operators of a program ``hpu_backend`` compiled, and which it left to eager mode."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_analyzers: list[FxGraphAnalyzer] = []


@dataclass
class OpCount:
    """How often an operator occurs in a graph.

    Attributes
    ----------
    graph_count : int
        In what was compiled.
    eager_count : int
        In what was left to eager mode.
    """

    graph_count: int = 0
    eager_count: int = 0

    def __str__(self) -> str:
        return f"{{graph_count = {self.graph_count}, eager_count = {self.eager_count}}}"


class FxGraphAnalyzer:
    """Record the graphs that ``hpu_backend`` compiles inside a ``with`` block; they may be nested.

    Each graph is one partition here: an operator is compiled if the whole graph is, and left to
    eager mode if not. In-place operators are counted in their functional form.

    Parameters
    ----------
    reset_dynamo : bool
        Forget at the beginning what was compiled, so that it is compiled again.
    capture_non_hpu_output : bool
        Count also operators whose results are not on the device.
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
            left = {name: str(count) for name, count in summary.items() if count.eager_count}
            if left:
                logging.getLogger("habana_frameworks.torch").critical(
                    "Graph %d leaves operators to eager mode: %s", number, left
                )

    def get_ops_summary(self) -> list[dict[str, OpCount]]:
        """Return, for each compiled graph, its operators (``torch.ops.aten.add.Tensor``)."""
        return self._summaries

    def get_partition_num(self) -> int:
        """Return the number of pieces that were compiled."""
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
    """Return a graph's operators while an analyzer is open; to be asked before passes change it."""
    return operators_of(graph) if _analyzers else None


def note_graph(operators: Mapping[str, tuple[int, int]] | None, compiled: bool) -> None:
    """Tell the open analyzers about a graph."""
    for analyzer in _analyzers if operators is not None else ():
        analyzer._note(operators, compiled)


def operators_of(graph: torch.fx.Graph) -> dict[str, tuple[int, int]]:
    """Return how often each operator gives a result on the device, and how often at all."""
    operators: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            name = f"torch.ops.{node.target}"
            on_device, at_all = operators.get(name, (0, 0))
            operators[name] = (on_device + _on_device(node.meta.get("val")), at_all + 1)
    return operators


def _on_device(result: Any) -> bool:
    if isinstance(result, list | tuple):
        return any(_on_device(each) for each in result)
    return isinstance(result, torch.Tensor) and result.device.type == "hpu"
