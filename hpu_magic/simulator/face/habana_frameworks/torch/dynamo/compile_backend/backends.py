"""The backend itself: AOTAutograd's graphs as programs that the engine runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hpu_magic.simulator import engine
from torch._dynamo.backends.registry import register_backend

from .config import configuration_flags, patched
from .passes import DROPOUT, reinplace
from .program import program_of

NAME = "hpu_backend"

_numbers = itertools.count()


def register() -> None:
    """Add ``hpu_backend`` to Dynamo's backends; for one call a process."""
    register_backend(hpu_backend, name=NAME)


def hpu_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **ignored: Any,
) -> Callable[..., Any]:
    """Compile one graph that Dynamo captured, for training or inference.

    Forward and backward each count as a compilation when they are compiled; a backward
    that is never asked for is never compiled.

    Parameters
    ----------
    graph : GraphModule
    example_inputs : sequence
        Fake tensors and numbers.
    options : dict, optional
        Settings for this compilation, see `config`.
    """
    from torch._dynamo.backends.common import aot_autograd

    started = time.perf_counter_ns()
    with patched(options or {}):
        number = next(_numbers)
        compile_graph = aot_autograd(
            fw_compiler=_compiler(f"forward_{number}", started),
            bw_compiler=_compiler(f"backward_{number}"),
            inference_compiler=_compiler(f"inference_{number}", started),
            decompositions=_decompositions(),
            keep_inference_input_mutations=configuration_flags["keep_input_mutations"],
        )
        return compile_graph(graph, example_inputs)


def _decompositions() -> dict[Any, Callable[..., Any]]:
    mode = configuration_flags["decomposition_mode"]
    if mode == "core_aten":
        from torch._decomp import core_aten_decompositions

        return dict(core_aten_decompositions())
    return DROPOUT if mode == "habana" else {}


def _compiler(name: str, tracing_since: int | None = None) -> Callable[..., Any]:
    """Return a compiler for one graph; `tracing_since` is when work on it began."""

    def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        started = tracing_since or time.perf_counter_ns()
        if configuration_flags["reinplace_add"]:
            reinplace(graph.graph)
        program = program_of(graph.graph) or _generated(graph)

        def run(arguments: list[Any]) -> Any:
            return program(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        elapsed = time.perf_counter_ns() - started
        engine.load().record_compilation(name, elapsed, _shapes(inputs))
        return run

    return compile_graph


def _generated(graph: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return the graph as a Python function for what no program can hold."""
    from torch.fx.graph import _BoxedCodeGen

    # Boxed: the arguments come in a list that the code empties, so that each is freed
    # after its last use.
    graph.graph.set_codegen(_BoxedCodeGen())
    graph.recompile()
    forward: Callable[[list[Any]], Any] = graph.forward
    return forward


def _shapes(inputs: Sequence[Any]) -> str:
    """Shapes of the tensors among the inputs, for people: ``[64, 784] [512, 784]``."""
    return " ".join(
        str([int(size) if isinstance(size, int) else str(size) for size in each.shape])
        for each in inputs
        if isinstance(each, torch.Tensor)
    )
