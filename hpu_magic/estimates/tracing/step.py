"""A step of a model, traced: forward, and where it trains backward and the optimizer's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import lasting, nests, optimizers, twins
from hpu_magic.estimates.tracing.fake_card import fake_card
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.place import device_type
from hpu_magic.estimates.tracing.program import Program, Role
from hpu_magic.estimates.tracing.recomputation import recomputing
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.refusals import UntracedError, explained

Loss = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class StepOptions:
    """How a step runs."""

    train: bool = True
    dtype: torch.dtype | None = None
    """Type of the model's floating point tensors and inputs; their own if None."""
    autocast: torch.dtype | None = None
    """Type that `torch.autocast` computes in; no autocast if None."""
    optimizer: optimizers.Make | None = None
    loss: Loss | None = None
    """What of the output is minimized; the output's `loss`, or else its sum, if None."""
    batch: int | None = None
    """Size of the inputs' first dimension; as given if None."""
    checkpointing: str = "none"
    """What of the layers' activations is computed again: ``none``, ``full`` or ``selective``."""
    accumulating: bool = False
    """Gradients of earlier steps are there already."""


def trace_step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: StepOptions,
) -> Program:
    """Return what one step runs, without computing it.

    Parameters
    ----------
    model : nn.Module
        On any device, ``meta`` too. It is left as it was.
    args, kwargs
        What it is called with: tensors on any device, of which shapes and types count.
    options : StepOptions
        How it runs.

    Raises
    ------
    EstimateError
        What runs depends on numbers, or on an operator that tells no shapes without them.
    """
    program = Program(classes={name: type(one).__name__ for name, one in model.named_modules()})
    modules = RunningModules(model)
    recorder = Recorder(program, modules)
    try:
        with ExitStack() as stack:
            stack.enter_context(explained())
            # What surrounds the call is of other code; the options say how the step runs.
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(options.train))
            stack.enter_context(torch.autocast(device_type(), enabled=False))
            stack.enter_context(fake_card())
            tensors = twins.fake_tensors(model, options.dtype, training=options.train)
            step = _Step(model, stack.enter_context(tensors), program, recorder, options)
            stack.enter_context(recomputing(model, options.checkpointing))
            stack.enter_context(modules)
            step.run((args, dict(kwargs)))
    except UntracedError as error:
        still = lasting.sentence(
            model, options.dtype, train=options.train, optimizer=options.optimizer
        )
        raise UntracedError(f"{error} {still}") from error.__cause__
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

    def run(self, given: Any) -> None:
        """Record all of it."""
        options = self._options
        self._refuse_empty(given)
        args, kwargs = twins.inputs(given, options.dtype, options.batch)
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
        self._tell_roles(saved)
        trained = [one for one in self._parameters.values() if one.grad is not None]
        if options.optimizer is not None:
            with self._recorder:
                optimizers.record_step(options.optimizer, self._recorder, trained)
        self._recorder.close()

    def _forward(self, args: Any, kwargs: Any) -> Any:
        dtype = self._options.autocast
        with torch.autocast(device_type(), dtype=dtype, enabled=dtype is not None):
            return self._called()(*args, **kwargs)

    def _called(self) -> Callable[..., Any]:
        """Return what runs: a LightningModule trains by the step that it defines."""
        step = getattr(self._model, "training_step", None)
        trains = self._options.train and self._options.loss is None
        if step is None or not trains or not _is_defined(step):
            return self._model
        if not getattr(self._model, "automatic_optimization", True):
            raise EstimateError(
                f"{type(self._model).__name__} optimizes by hand, and its training_step needs a "
                "Trainer: give loss=, a function of what forward returns, or train=False."
            )

        def run(*args: Any, **kwargs: Any) -> Any:
            batch = kwargs or (args[0] if len(args) == 1 else args)
            for one in self._model.modules():
                if hasattr(one, "training_step"):  # what it logs is for the trainer of a fit
                    vars(one).update(dict.fromkeys(("log", "log_dict"), _leave_out))
            return step(batch, 0) if len(signature(step).parameters) > 1 else step(batch)

        return run

    def _loss(self, args: Any, kwargs: Any) -> torch.Tensor:
        output = self._forward(args, kwargs)
        loss = _loss_of(output, self._options.loss)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            found = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise EstimateError(f"The loss is {found}, and backward takes a tensor of one number.")
        if not loss.requires_grad:
            raise EstimateError(
                "The loss depends on no parameter that requires a gradient: give train=False, or "
                "let some require one."
            )
        return loss

    def _refuse_empty(self, given: Any) -> None:
        found = list(nests.tensors(given))
        sizes = [one.shape[0] for one in found if one.dim()]
        if sizes[:1] == [0] or (found and not any(map(torch.numel, found))):
            args, kwargs = given
            told = ", ".join(map(nests.described, (*args, *kwargs.values())))
            raise EstimateError(
                f"There is nothing in what {type(self._model).__name__} is called with, {told}: "
                "give at least one sample."
            )

    def _hold(self, args: Any, kwargs: Any) -> None:
        hold, program = self._recorder.hold, self._program
        for name, one in self._parameters.items():
            path = name.rpartition(".")[0]
            hold(one, Role.WEIGHTS, path)
            if self._options.accumulating and one.requires_grad:
                one.grad = torch.empty_like(one)
                hold(one.grad, Role.GRADIENTS, path)
        for name, buffer in self._buffers.items():
            hold(buffer, Role.BUFFERS, name.rpartition(".")[0])
        for given in nests.tensors((args, kwargs)):
            hold(given, Role.INPUTS)
            if given.dim() and not program.samples:
                program.samples = given.shape[0]
            if given.dim() and not program.tokens and not given.is_floating_point():
                program.tokens = given.numel()
        # What has no dimension for them is one sample.
        program.samples = program.samples or 1

    def _tell_roles(self, saved: int) -> None:
        """Tell what backward left behind, and what it found."""
        for name, one in self._parameters.items():
            if one.grad is not None:
                index = self._recorder.index_of(one.grad)
                if index is not None:
                    storage = self._program.storages[index]
                    storage.role, storage.module = Role.GRADIENTS, name.rpartition(".")[0]
        for storage in self._program.storages:
            left = storage.freed is None or storage.freed > saved
            if storage.role is Role.TEMPORARY and 0 <= storage.born < saved and left:
                storage.role = Role.ACTIVATIONS


def _loss_of(output: Any, given: Loss | None) -> torch.Tensor:
    if given is not None:
        return given(output)
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    if isinstance(output, Mapping) and isinstance(output.get("loss"), torch.Tensor):
        found: torch.Tensor = output["loss"]
        return found
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    parts = [one for one in nests.tensors(output) if one.requires_grad]
    if not parts:
        raise EstimateError(
            f"The model returns {nests.described(output)}, in which nothing depends on a parameter "
            "that requires a gradient: let one require it, give loss=, a function of the output, "
            "or train=False."
        )
    return torch.stack(
        [(one.real if one.is_complex() else one).float().sum() for one in parts]
    ).sum()


def _is_defined(step: Any) -> bool:
    """Tell whether a training step is there, other than Lightning's own, which does nothing."""
    module = str(getattr(step, "__module__", ""))
    return callable(step) and not module.startswith(("lightning.", "pytorch_lightning."))


def _leave_out(*_: Any, **__: Any) -> None:
    """Log nothing."""
