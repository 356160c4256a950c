"""Callables whose forward and backward passes are captured graphs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from habana_frameworks.torch._once_differentiable import once_differentiable
from habana_frameworks.torch.hpu.graphs._capture import WrappedGraph, graph, require_lazy
from habana_frameworks.torch.hpu.graphs._inputs import check_device, fill, tensors_of

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten


def without_tensor_cache(requested: bool) -> bool:
    """Return whether to free intermediate results after each replay."""
    return requested or os.environ.get("PT_HPUGRAPH_DISABLE_TENSOR_CACHE") == "1"


class TrainingGraphs:
    """Graphs of a function's forward and backward passes, for inputs of fixed shapes.

    `function` takes no arguments, reads `inputs`, and returns tensors or a structure of tensors.
    Each call fills `inputs` with new values. `parameters` are other tensors that require gradients.
    The options are the same as those of `make_graphed_callables`.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        inputs: Sequence[torch.Tensor],
        parameters: Sequence[torch.Tensor],
        *,
        allow_unused_input: bool = False,
        disable_tensor_cache: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._cacheless = disable_tensor_cache
        dry_run = dry_run or disable_tensor_cache
        self._inputs = list(inputs)
        self._replays = 0  # number of replays, which also identifies a call
        self._freed_call = 0  # the last call whose results were freed by backward
        self._is_reset = False
        self._forward = WrappedGraph()
        self._backward: WrappedGraph | None = None
        with torch.enable_grad(), graph(self._forward, dry_run=dry_run):
            leaves, self._structure = tree_flatten(function())
        self._leaves = leaves
        self._outputs = tensors_of(leaves)
        surface = (*self._inputs, *parameters)
        self._requires = [tensor.requires_grad for tensor in surface]
        self._sources = [tensor for tensor in surface if tensor.requires_grad]
        self._gradients: tuple[torch.Tensor | None, ...] = ()
        self._incoming: list[torch.Tensor] = []
        if self._sources and any(output.requires_grad for output in self._outputs):
            self._capture_backward(allow_unused_input, dry_run)
        if disable_tensor_cache:
            self._free_intermediates()
        self._leaves = [
            leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ]
        self._outputs = tensors_of(self._leaves)
        self._function = self._as_autograd_function()

    def _capture_backward(self, allow_unused_input: bool, dry_run: bool) -> None:
        differentiable = [output for output in self._outputs if output.requires_grad]
        self._differentiable = [output.requires_grad for output in self._outputs]
        self._incoming = [torch.zeros_like(output) for output in differentiable]
        self._backward = WrappedGraph()
        with graph(self._backward, dry_run=dry_run):
            self._gradients = torch.autograd.grad(
                differentiable, self._sources, self._incoming, allow_unused=True
            )
            unused = sum(gradient is None for gradient in self._gradients)
            if unused and not allow_unused_input:
                raise RuntimeError(
                    f"{unused} of the {len(self._sources)} inputs and parameters that require a "
                    "gradient do not affect the outputs; pass allow_unused_input=True if this is "
                    "intended, or freeze them with requires_grad_(False)."
                )

    def _free_intermediates(self) -> None:
        gradients = [each for each in self._gradients if each is not None]
        kept = [*self._inputs, *self._outputs, *self._incoming, *gradients]
        self._forward.free_intermediates(kept, self._backward)

    def __call__(self, inputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> Any:
        """Replay with new inputs, and return the outputs, structured like the function's result.

        The outputs belong to the graph, and the next call overwrites them.
        """
        fill(self._inputs, inputs)
        if self._backward is None or not torch.is_grad_enabled():
            self._forward.replay()
            self._replays += 1
            if self._cacheless:
                self._forward.free_for_backward()
            results = self._outputs
        else:
            results = self._function.apply(*inputs, *parameters)
        remaining = iter(results)
        leaves = [
            next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves
        ]
        return tree_unflatten(leaves, self._structure)

    def reset(self) -> None:
        """Free both graphs."""
        self._is_reset = True
        self._forward.reset()
        if self._backward is not None:
            self._backward.reset()

    def _as_autograd_function(self) -> type[torch.autograd.Function]:
        graphed = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *surface: torch.Tensor) -> tuple[torch.Tensor, ...]:
                graphed._forward.replay()
                graphed._replays = ctx.call = graphed._replays + 1
                outputs = tuple(output.detach() for output in graphed._outputs)
                ctx.mark_non_differentiable(
                    *(
                        output
                        for output, needed in zip(outputs, graphed._differentiable, strict=True)
                        if not needed
                    )
                )
                return outputs

            @staticmethod
            @once_differentiable("A captured graph")
            def backward(ctx: Any, *incoming: torch.Tensor) -> Any:
                graphed._check_backward(ctx.call)
                return tuple(graphed._run_backward(incoming, ctx.needs_input_grad))

        return Graphed

    def _check_backward(self, call: int) -> None:
        if self._is_reset:
            raise RuntimeError(
                "The graph of this output was freed to make room for one with other inputs; call "
                "backward() before the next forward, or keep more graphs with max_graphs."
            )
        if call != self._replays:
            raise RuntimeError(
                "The graph was replayed after this output was computed, which overwrote the "
                "tensors that backward() needs; call backward() before the next forward with the "
                "same kind of input."
            )
        if call == self._freed_call:
            raise RuntimeError(
                "backward() has already run for this output and, with disable_tensor_cache=True, "
                "has freed its tensors; call backward() only once per forward."
            )

    def _run_backward(
        self, incoming: Sequence[torch.Tensor], needed: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        assert self._backward is not None
        captured = self._requires
        if any(now and not then for now, then in zip(needed, captured, strict=True)):
            raise RuntimeError(
                "An input or parameter requires a gradient, but did not require one during the "
                "capture; capture the graph again."
            )
        used = [
            gradient
            for gradient, differentiable in zip(incoming, self._differentiable, strict=True)
            if differentiable
        ]
        fill(self._incoming, used)
        self._backward.replay()
        if self._cacheless:
            self._freed_call = self._replays
        # Autograd stores the first gradient without a copy, so the next replay would overwrite it.
        remaining = iter(self._gradients)
        gradients = [next(remaining) if then else None for then in captured]
        return [
            each.clone() if now and each is not None else None
            for now, each in zip(needed, gradients, strict=True)
        ]


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    warmups: int = 0,
    allow_unused_input: bool = False,
    asynchronous: bool = False,
    disable_tensor_cache: bool = False,
    dry_run: bool = False,
) -> Any:
    """Capture the forward and backward passes of modules or functions, using sample inputs.

    Parameters
    ----------
    callables : callable or tuple of callables
        A module is modified in place: its forward replays the graph if the module is in the same
        mode (training or evaluation) as during the capture; otherwise, it calls the original
        forward.
    sample_args : tuple of Tensor, or one tuple per callable
        Sample inputs with the same shapes, dtypes and requires_grad flags as later inputs. The
        graphs read these tensors, and each call copies its inputs into them.
    warmups : int
        Number of calls to make before the capture.
    allow_unused_input : bool
        Whether to accept inputs and parameters that do not affect the outputs.
    asynchronous, dry_run : bool
        See `HPUGraph`.
    disable_tensor_cache : bool
        Keep only inputs, outputs and gradients between replays. Intermediate results are freed
        after the last operation that reads them, which may be in backward, or at the latest by the
        next forward. This option implies `dry_run`. ``PT_HPUGRAPH_DISABLE_TENSOR_CACHE=1`` enables
        it for all callables.

    Raises
    ------
    AssertionError
        A module has hooks, a buffer requires a gradient, or a sample input is not a tensor.
    RuntimeError
        The process is in eager mode, a sample input is not on the device, or a callable contains
        operations that a capture does not support. Calls also raise RuntimeError if an input
        differs from its sample in shape or dtype, or is not on the device.
    """
    require_lazy()
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    for function, sample in zip(functions, samples, strict=True):
        _check(function, sample)
    cacheless = without_tensor_cache(disable_tensor_cache)
    graphed = tuple(
        _graphed(function, sample, warmups, allow_unused_input, cacheless, dry_run)
        for function, sample in zip(functions, samples, strict=True)
    )
    return graphed[0] if single else graphed


def _check(function: Any, sample: Any) -> None:
    if not (isinstance(sample, tuple) and all(isinstance(each, torch.Tensor) for each in sample)):
        raise AssertionError(
            "sample_args must be a tuple of tensors for each callable; graphs only support tensor "
            "inputs."
        )
    check_device(sample)
    if not isinstance(function, torch.nn.Module):
        return
    if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
        raise AssertionError(
            f"{type(function).__name__} has hooks; remove them before the capture, and register "
            "them on the graphed module."
        )
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise AssertionError(
            f"A buffer of {type(function).__name__} requires a gradient; make it a parameter."
        )


def _graphed(
    function: Any,
    sample: tuple[torch.Tensor, ...],
    warmups: int,
    allow_unused_input: bool,
    disable_tensor_cache: bool,
    dry_run: bool,
) -> Any:
    is_module = isinstance(function, torch.nn.Module)
    parameters = tuple(function.parameters()) if is_module else ()
    original = function.forward if is_module else function
    for _ in range(warmups):
        _warm_up(original, sample, parameters)
    captured = TrainingGraphs(
        lambda: original(*sample),
        sample,
        parameters,
        allow_unused_input=allow_unused_input,
        disable_tensor_cache=disable_tensor_cache,
        dry_run=dry_run,
    )
    if not is_module:
        return functools.wraps(function)(lambda *inputs: captured(inputs, ()))
    training = function.training

    @functools.wraps(original)
    def forward(*inputs: torch.Tensor) -> Any:
        if function.training != training:
            return original(*inputs)
        return captured(inputs, parameters)

    function.forward = forward
    return function


def _warm_up(
    function: Callable[..., Any], sample: Sequence[torch.Tensor], parameters: Sequence[Any]
) -> None:
    with torch.enable_grad():
        outputs = [each for each in tensors_of(function(*sample)) if each.requires_grad]
    sources = [each for each in (*sample, *parameters) if each.requires_grad]
    if outputs and sources:
        seeds = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, sources, seeds, allow_unused=True)
    torch.hpu.synchronize()
