"""Run the forward and backward of a training graph in the engine, as a single autograd node.

AOTAutograd's Python wrapper also supports functions that write to their inputs, return views of
them, or use tensor subclasses. However, the wrapper slows down every step, and most graphs do not
need it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from habana_frameworks.torch.dynamo.compile_backend.program import constants_of, program_of

import torch
from hpu_magic.simulator import engine
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_TAG, _BACKWARD = "partitioner_tag", "is_backward"  # set by AOTAutograd


class Partition:
    """Splits joint graphs with AOTAutograd's default partitioner, and keeps the backward graph.

    The names of the forward graph's outputs are also kept, because later passes rename nodes.
    """

    def __init__(self) -> None:
        self.backward: torch.fx.GraphModule | None = None
        self.returned: list[str] = []

    def __call__(self, joint: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        """Return the forward and backward graphs of a joint graph."""
        from functorch.compile import default_partition

        _view_again(joint.graph)
        forward, self.backward = default_partition(joint, inputs, **options)
        self.returned = [getattr(node, "name", "") for node in _results(forward.graph)]
        return forward, self.backward


def differentiable(
    forward: Any,
    forward_graph: torch.fx.Graph,
    partition: Partition,
    inputs: Sequence[Any],
    compile_backward: Callable[[], Any],
) -> Callable[..., Any] | None:
    """Return a differentiable function of the graph's inputs, or None if AOTAutograd has to run it.

    `forward` is the program of `forward_graph`, `inputs` are the fake tensors and numbers from
    tracing, and `compile_backward` returns the backward program during the first backward pass.
    """
    context = torch._guards.TracingContext.try_get()
    metadata = context and context.fw_metadata
    if metadata is None or partition.backward is None or not _is_plain(metadata, inputs):
        return None
    returned = _results(forward_graph)
    backward_inputs = _placeholders(partition.backward.graph)
    gradients = _results(partition.backward.graph)
    has_gradient = [bool(output.requires_grad) for output in metadata.output_info]
    saved = partition.returned[len(has_gradient) :]
    tangents = backward_inputs[len(saved) :]
    if (
        torch._dynamo.config.compiled_autograd
        or len(_placeholders(forward_graph)) != len(inputs)
        or len(gradients) != len(inputs)
        or len(tangents) != sum(has_gradient)
        or saved != [node.name for node in backward_inputs[: len(saved)]]
        or not all(
            isinstance(node.meta.get("val"), torch.Tensor) for node in (*returned, *backward_inputs)
        )
        or constants_of(partition.backward.graph)
        or program_of(partition.backward.graph) is None  # checked, not compiled
    ):
        return None
    return engine.load().DifferentiableProgram(
        forward,
        torch._dynamo.disable(compile_backward),
        [gradient is not None for gradient in gradients],
        has_gradient,
        [(each.shape, each.stride()) for each in (node.meta["val"] for node in tangents)],
    )


def _is_plain(metadata: Any, inputs: Sequence[Any]) -> bool:
    """Return whether a graph has static shapes, no mutated inputs and no aliased outputs."""
    from torch._functorch._aot_autograd.schemas import MutationType, OutputType

    new = (OutputType.non_alias, OutputType.unsafe_view_alias)
    return (
        all(_has_fixed_shape(each) for each in inputs)
        and all(each.mutation_type is MutationType.NOT_MUTATED for each in metadata.input_info)
        and all(
            each.output_type in new and issubclass(each.raw_type, torch.Tensor)
            for each in metadata.output_info
        )
        and metadata.num_intermediate_bases == 0
        and metadata.grad_enabled_mutation is None
        and not metadata.tokens
        and not getattr(metadata, "num_backward_tokens", 0)
        and not getattr(metadata, "num_graphsafe_rng_states", 0)
        and not getattr(metadata, "num_tensors_saved_with_no_vc_check", 0)
        and not getattr(metadata, "num_opaque_objects_saved_for_bw", 0)
        and not metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw
    )


def _has_fixed_shape(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and not is_traceable_wrapper_subclass(value)
        and all(type(size) is int for size in (*value.shape, *value.stride()))
    )


def _view_again(graph: torch.fx.Graph) -> None:
    """Let the backward pass create its own views of inputs.

    The backward pass then receives inputs such as weights, instead of views that the forward pass
    saved.
    """
    # In a chain of views, the last view is copied first.
    for node in reversed(list(graph.nodes)):
        if not _is_view_of_input(node):
            continue
        for user in [user for user in node.users if user.meta.get(_TAG) == _BACKWARD]:
            with graph.inserting_before(user):
                copy = graph.node_copy(node)
            copy.meta[_TAG] = _BACKWARD
            user.replace_input_with(node, copy)


def _is_view_of_input(node: torch.fx.Node) -> bool:
    is_view = node.target is operator.getitem or getattr(node.target, "is_view", False)
    if node.op != "call_function" or not is_view:
        return False
    [base, *others] = node.all_input_nodes
    return not others and (base.op == "placeholder" or _is_view_of_input(base))


def _placeholders(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _results(graph: torch.fx.Graph) -> list[Any]:
    (output,) = [node for node in graph.nodes if node.op == "output"]
    return list(output.args[0])
