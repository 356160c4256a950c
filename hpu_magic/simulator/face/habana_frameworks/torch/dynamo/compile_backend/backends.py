"""The ``hpu_backend`` compile backend, which runs AOTAutograd's graphs as engine programs."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from habana_frameworks.torch._flags import is_lazy
from habana_frameworks.torch.dynamo.compile_backend import experimental
from habana_frameworks.torch.dynamo.compile_backend.config import configuration_flags, patched
from habana_frameworks.torch.dynamo.compile_backend.passes import (
    DROPOUT,
    copy_in_place,
    reinplace,
)
from habana_frameworks.torch.dynamo.compile_backend.program import (
    constants_of,
    program_of,
    unused_objects,
)
from habana_frameworks.torch.dynamo.compile_backend.training import Partition, differentiable
from habana_frameworks.torch.utils.debug.dynamo_utils import note_graph, operators_to_note

import torch
from hpu_magic.simulator import engine
from torch._dynamo.backends.registry import register_backend

NAME = "hpu_backend"

_numbers = itertools.count()


def register() -> None:
    """Add ``hpu_backend`` to Dynamo's backends, even in lazy mode; call once per process."""
    register_backend(hpu_backend, name=NAME)
    if is_lazy():
        return
    # The operator's schema does not declare that it writes to the gradients, so graphs would drop
    # the operator.
    torch._dynamo.disallow_in_graph(torch.ops.hpu.accumulate_grads_)
    experimental.enable_if_flag_is_set()


def hpu_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **ignored: Any,
) -> Callable[..., Any]:
    """Compile a graph captured by Dynamo, for training or inference.

    The forward and backward graphs are compiled separately, the backward graph on first use.
    `example_inputs` are fake tensors and numbers. `options` are settings for this compilation; see
    `config`. Raises RuntimeError in lazy mode.
    """
    if is_lazy():
        raise RuntimeError(
            "hpu_backend requires eager mode, but this process is in lazy mode; "
            "set PT_HPU_LAZY_MODE=0 before Python starts, or call the function without "
            "torch.compile."
        )
    from torch._dynamo.backends.common import aot_autograd

    started = time.perf_counter_ns()
    with patched(options or {}):
        number = next(_numbers)
        forward = _Compiler(f"forward_{number}", started)
        backward = _Compiler(f"backward_{number}")
        partition = Partition()
        compile_graph = aot_autograd(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=_Compiler(f"inference_{number}", started),
            partition_fn=partition,
            decompositions=_decompositions(),
            keep_inference_input_mutations=configuration_flags["keep_input_mutations"],
        )
        compiled = compile_graph(graph, example_inputs)
        if partition.backward is None:
            return compiled
        _keep_saved_tensors()
        by_engine = (
            not forward.constants
            and forward.program
            and differentiable(
                forward.program,
                forward.graph,
                partition,
                example_inputs,
                functools.partial(backward.compile, partition.backward),
            )
        )
        return by_engine or _refusing_second_derivatives(compiled)


def _keep_saved_tensors() -> None:
    """Prevent backward graphs from overwriting tensors that the forward graph saved.

    AOTAutograd allows backward graphs to do so, and therefore raises an error for
    ``retain_graph=True``. Programs never overwrite saved tensors.
    """
    context = torch._guards.TracingContext.try_get()
    donated = getattr(context and context.fw_metadata, "bw_donated_idxs", None)
    if donated:
        donated.clear()


def _refusing_second_derivatives(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Make AOTAutograd's training graph raise an error instead of dropping gradients.

    AOTAutograd itself raises no error for ``create_graph=True`` with ``backward(inputs=...)``.
    """
    if torch._dynamo.config.compiled_autograd:
        return compiled
    refuse = engine.load().refuse_second_derivatives

    def run(*arguments: Any) -> Any:
        results = compiled(*arguments)
        refuse(*results, *arguments)
        return results

    return run


def _decompositions() -> dict[Any, Callable[..., Any]]:
    mode = configuration_flags["decomposition_mode"]
    if mode == "core_aten":
        from torch._decomp import core_aten_decompositions

        return dict(core_aten_decompositions())
    if mode == "inductor":
        from torch._inductor.decomposition import select_decomp_table

        return dict(select_decomp_table())
    return DROPOUT if mode == "habana" else {}


class _Compiler:
    """Compiles a graph; `tracing_since` is the time at which tracing started, in nanoseconds."""

    def __init__(self, name: str, tracing_since: int | None = None) -> None:
        self._name = name
        self._tracing_since = tracing_since
        self._flags = dict(configuration_flags)
        self.graph: torch.fx.Graph
        self.program: Any = None
        self.constants: list[torch.Tensor] = []
        self.unused: set[int] = set()

    def compile(self, module: torch.fx.GraphModule) -> Any:
        """Return the graph's program, or None if it has none or takes other inputs."""
        started = self._tracing_since or time.perf_counter_ns()
        operators = operators_to_note(module.graph)
        if self._flags["reinplace_add"]:
            reinplace(module.graph)
        if self._flags["use_inplace_index_copy"]:
            copy_in_place(module.graph)
        self.graph, self.program = module.graph, program_of(module.graph)
        self.constants = constants_of(module.graph)
        self.unused = unused_objects(module.graph)
        note_graph(operators, self.program is not None)
        elapsed = time.perf_counter_ns() - started
        engine.load().emit_compilation(self._name, elapsed, _shapes(module.graph))
        return None if self.constants or self.unused else self.program

    def __call__(self, module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph to a boxed function, which empties its argument list."""
        self.compile(module)
        call = _generated(module) if self.program is None else self.program.run
        constants = [] if self.program is None else self.constants
        unused = set() if self.program is None else self.unused

        def run(arguments: list[Any]) -> Any:
            for number in sorted(unused, reverse=True):
                del arguments[number]
            arguments += constants
            return call(arguments)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def _generated(graph: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return the graph as a Python function, for graphs that programs cannot represent."""
    # Boxed code empties its argument list, so that each argument is freed after its last use.
    boxed = getattr(torch.fx.graph, "_BoxedCodeGen", None)
    if boxed is None:
        return functools.partial(_run_unboxed, graph.forward)
    graph.graph.set_codegen(boxed())
    graph.recompile()
    forward: Callable[[list[Any]], Any] = graph.forward
    return forward


def _run_unboxed(forward: Callable[..., Any], arguments: list[Any]) -> Any:
    """Call generated code in releases without the boxed calling convention."""
    unpacked = tuple(arguments)
    arguments.clear()
    return forward(*unpacked)


def _shapes(graph: torch.fx.Graph) -> str:
    """Return the shapes of the input tensors as text, for example ``[64, 784] [512, 784]``."""
    inputs = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    return " ".join(
        str([int(size) if isinstance(size, int) else str(size) for size in each.shape])
        for each in inputs
        if isinstance(each, torch.Tensor)
    )
