"""Trace a model's step: the forward pass and, for training, the backward pass and the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import torch
from torch import nn

from hpu_magic import units
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import optimizers, twins
from hpu_magic.estimates.tracing.decompositions import compiling, decompositions
from hpu_magic.estimates.tracing.fake_card import device_type, fake_card
from hpu_magic.estimates.tracing.function_calls import FunctionCalls
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.program import Parameter, Program, Role, card_bytes
from hpu_magic.estimates.tracing.recomputation import recomputing
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.refusals import UntracedError, explained
from hpu_magic.estimates.tracing.routing import count_choices
from hpu_magic.runtime.device import nests

_TOKENS = (torch.int32, torch.int64)
Loss = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class StepOptions:
    """Options for tracing a step."""

    train: bool = True
    dtype: torch.dtype | None = None
    """Dtype of the model's floating-point tensors and inputs; None leaves it unchanged."""
    autocast: torch.dtype | None = None
    """Dtype for `torch.autocast`; None disables autocast."""
    optimizer: optimizers.Make | None = None
    loss: Loss | None = None
    """Computes the loss from the output; the default is the output's `loss`, or else its sum."""
    batch: int | None = None
    """Size of the inputs' first dimension; None leaves it unchanged."""
    checkpointing: str = "none"
    """Which activations the layers recompute: ``none``, ``full`` or ``selective``."""
    accumulating: bool = False
    """Whether gradients from earlier steps already exist."""
    compiled: bool = False
    """Whether `torch.compile` decomposes operators."""


def trace_step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: StepOptions,
) -> Program:
    """Return the program of one step; nothing is computed.

    The model and its inputs can be on any device, including ``meta``. The model is not changed, and
    only the shapes and dtypes of the inputs matter. Raises `EstimateError` if operations depend on
    tensor values, or if an operator cannot infer shapes without values.
    """
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    program = Program(classes=classes)
    if "" in program.not_compiled():
        options = replace(options, compiled=False)
    modules = RunningModules(model)
    recorder = Recorder(program, modules)
    try:
        with ExitStack() as stack:
            stack.enter_context(explained())
            # The options, not the caller's autograd and autocast contexts, determine how the step
            # runs.
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(options.train))
            stack.enter_context(torch.autocast(device_type(), enabled=False))
            stack.enter_context(fake_card())
            if options.compiled:
                stack.enter_context(decompositions())
            tensors = twins.fake_tensors(model, options.dtype, training=options.train)
            step = _Step(model, stack.enter_context(tensors), program, recorder, options)
            stack.enter_context(recomputing(model, options.checkpointing))
            stack.enter_context(modules)
            step.run((args, dict(kwargs)))
            count_choices(program)
    except UntracedError as error:
        lower_bound = lasting_memory(
            model, options.dtype, train=options.train, optimizer=options.optimizer
        )
        raise UntracedError(f"{error} {lower_bound}") from error.__cause__
    return program


class _Step:
    def __init__(
        self,
        model: nn.Module,
        tensors: twins.Twins,
        program: Program,
        recorder: Recorder,
        options: StepOptions,
    ) -> None:
        self._model, self._program, self._recorder = model, program, recorder
        self._options = options
        self._parameters, self._buffers = tensors.parameters, tensors.buffers

    def run(self, call: Any) -> None:
        """Record the step."""
        options = self._options
        self._check_inputs(call)
        args, kwargs = twins.inputs(call, options.dtype, options.batch)
        self._hold(args, kwargs)
        with self._recorder:
            if not options.train:
                with torch.no_grad():
                    output = self._forward(args, kwargs)
                self._recorder.close()
                del output
                return
            loss = self._loss(args, kwargs)
            saved = len(self._program.operations)
            loss.backward()
            del loss
        self._set_roles(saved)
        trained = [weight for weight in self._parameters.values() if weight.grad is not None]
        if options.optimizer is not None:
            with self._recorder:
                optimizers.record_step(options.optimizer, self._recorder, trained)
        self._recorder.close()

    def _forward(self, args: Any, kwargs: Any) -> Any:
        dtype = self._options.autocast
        with ExitStack() as stack:
            stack.enter_context(
                torch.autocast(device_type(), dtype=dtype, enabled=dtype is not None)
            )
            if self._options.compiled:
                stack.enter_context(compiling())
            if self._options.compiled and self._options.train:
                self._recorder.calls = stack.enter_context(FunctionCalls(self._program))
            return self._function()(*args, **kwargs)

    def _function(self) -> Callable[..., Any]:
        """Return the model, or its training step if it is a LightningModule."""
        step = getattr(self._model, "training_step", None)
        trains = self._options.train and self._options.loss is None
        if step is None or not trains or not _is_defined(step):
            return self._model
        if not getattr(self._model, "automatic_optimization", True):
            raise EstimateError(
                f"{type(self._model).__name__} uses manual optimization, so its training_step "
                "needs a Trainer: pass loss=, a function of forward's output, or train=False."
            )

        def run(*args: Any, **kwargs: Any) -> Any:
            batch = kwargs or (args[0] if len(args) == 1 else args)
            for module in self._model.modules():
                if hasattr(module, "training_step"):  # logging requires a running trainer
                    vars(module).update(dict.fromkeys(("log", "log_dict"), _do_nothing))
            return step(batch, 0) if len(signature(step).parameters) > 1 else step(batch)

        return run

    def _loss(self, args: Any, kwargs: Any) -> torch.Tensor:
        output = self._forward(args, kwargs)
        loss = _loss_of(output, self._options.loss)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise EstimateError(f"The loss is {found}, but must be a tensor with one element.")
        if not loss.requires_grad:
            raise EstimateError(
                "The loss does not depend on any parameter that requires a gradient: set "
                "requires_grad, or pass train=False."
            )
        return loss

    def _check_inputs(self, call: Any) -> None:
        found = list(nests.tensors(call))
        sizes = [tensor.shape[0] for tensor in found if tensor.dim()]
        if sizes[:1] == [0] or (found and not any(map(torch.numel, found))):
            args, kwargs = call
            inputs = ", ".join(map(nests.described, (*args, *kwargs.values())))
            raise EstimateError(
                f"The inputs of {type(self._model).__name__}, {inputs}, are empty: pass at least "
                "one sample."
            )

    def _hold(self, args: Any, kwargs: Any) -> None:
        hold, program = self._recorder.hold, self._program
        for name, weight in self._parameters.items():
            path = name.rpartition(".")[0]
            hold(weight, Role.WEIGHTS, path)
            if self._options.accumulating and weight.requires_grad:
                weight.grad = torch.empty_like(weight)
                hold(weight.grad, Role.GRADIENTS, path)
        for name, buffer in self._buffers.items():
            hold(buffer, Role.BUFFERS, name.rpartition(".")[0])
        for tensor in nests.tensors((args, kwargs)):
            hold(tensor, Role.INPUTS)
            if tensor.dim() and not program.samples:
                program.samples = tensor.shape[0]
        # Zero-dimensional inputs count as one sample.
        program.samples = program.samples or 1
        program.tokens = _tokens_of(args, kwargs)

    def _set_roles(self, saved: int) -> None:
        """Set the roles of gradients and of activations that are saved for the backward pass."""
        for name, weight in self._parameters.items():
            if weight.grad is not None:
                index = self._recorder.index_of(weight.grad)
                if index is not None:
                    storage = self._program.storages[index]
                    storage.role, storage.module = Role.GRADIENTS, name.rpartition(".")[0]
        self._program.parameters = list(map(self._described, self._parameters))
        for storage in self._program.storages:
            kept = storage.freed is None or storage.freed > saved
            if storage.role is Role.TEMPORARY and 0 <= storage.born < saved and kept:
                storage.role = Role.ACTIVATIONS

    def _described(self, name: str) -> Parameter:
        weight, make = self._parameters[name], self._options.optimizer
        index_of = self._recorder.index_of
        at = index_of(weight)
        assert at is not None  # all weights are held
        return Parameter(
            name,
            weight.numel(),
            at,
            gradient=None if weight.grad is None else index_of(weight.grad),
            group=optimizers.group_of(make, weight),
            trained=weight.requires_grad,
        )


def _tokens_of(args: Any, kwargs: Mapping[str, Any]) -> int:
    """Return the number of tokens in the inputs: integer tensors with at least two dimensions.

    The first tensor of a text model contains its tokens. If the first tensor is an image or another
    signal, only arguments with names such as `input_ids` contain tokens, because other integers are
    labels.
    """
    first = list(nests.tensors((args, kwargs)))[:1]
    named = [value for name, value in kwargs.items() if name.endswith("ids")]
    for tensor in (*first, *nests.tensors(named)):
        if tensor.dtype in _TOKENS and tensor.dim() > 1:
            return tensor.numel()
    return 0


def _loss_of(output: Any, function: Loss | None) -> torch.Tensor:
    if function is not None:
        return function(output)
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    if isinstance(output, Mapping) and isinstance(output.get("loss"), torch.Tensor):
        found: torch.Tensor = output["loss"]
        return found
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    parts = [tensor for tensor in nests.tensors(output) if tensor.requires_grad]
    if not parts:
        raise EstimateError(
            f"The model returns {nests.described(output)}, which does not depend on any parameter "
            "that requires a gradient: set requires_grad, or pass loss=, a function of the output, "
            "or train=False."
        )
    return torch.stack(
        [(part.real if part.is_complex() else part).float().sum() for part in parts]
    ).sum()


def _is_defined(step: Any) -> bool:
    """Return whether the model defines its own training step instead of Lightning's empty one."""
    module = str(getattr(step, "__module__", ""))
    return callable(step) and not module.startswith(("lightning.", "pytorch_lightning."))


def _do_nothing(*_: Any, **__: Any) -> None:
    pass


def lasting_memory(
    model: nn.Module, dtype: torch.dtype | None, *, train: bool, optimizer: optimizers.Make | None
) -> str:
    """Describe the memory that the weights and, in training, gradients and optimizer state need.

    The model is not changed. ``dtype`` is the dtype of the model's floating-point parameters, or
    None to keep their dtypes. ``optimizer`` is a function returned by `optimizers.maker`.
    """
    with fake_card(), twins.fake_tensors(model, dtype, training=train) as tensors:
        weights = list(tensors.parameters.values())
        trained = [weight for weight in weights if train and weight.requires_grad]
        parts = [f"weights {units.size(_bytes_of(weights))}"]
        if trained:
            parts.append(f"gradients {units.size(_bytes_of(trained))}")
        if trained and optimizer is not None:
            program = Program()
            with Recorder(program, RunningModules(model)) as recorder:
                optimizers.record_step(optimizer, recorder, trained)
            parts.append(f"optimizer {units.size(program.of_role(Role.OPTIMIZER))}")
    return f"Without activations, the model needs: {', '.join(parts)}."


def _bytes_of(tensors: list[nn.Parameter]) -> int:
    return sum(card_bytes(tensor.dtype, tensor.numel()) for tensor in tensors)
