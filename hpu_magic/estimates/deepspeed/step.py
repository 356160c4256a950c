"""The gradients and the optimizer step of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

import torch
from torch import nn

from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.deepspeed.timeline import Timeline, before
from hpu_magic.estimates.memory import peak
from hpu_magic.estimates.tracing import optimizers
from hpu_magic.estimates.tracing.fake_card import device_type, fake_card
from hpu_magic.estimates.tracing.modules import RunningModules
from hpu_magic.estimates.tracing.program import Parameter, Phase, Program, Role
from hpu_magic.estimates.tracing.recorder import Recorder
from hpu_magic.estimates.tracing.twins import ORIGINAL

MASTER = 4
"""Size in bytes of an element of the optimizer's copies of weights and gradients."""


@dataclass(frozen=True)
class Gradient:
    """A gradient and the operations that determine its lifetime."""

    parameter: Parameter
    bytes: int
    born: int
    """Index of the operation that creates the gradient."""
    ready: int
    """Index of the operation after which autograd runs the gradient's hooks."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.parameter.elements


@dataclass(frozen=True)
class Rank:
    """A step on one of several cards, whose additional memory is recorded in a timeline."""

    program: Program
    configuration: Configuration
    cards: int
    number: int
    model: nn.Module
    make: optimizers.Make | None
    recorded: bool
    timeline: Timeline

    @cached_property
    def operations(self) -> int:
        """Number of operations before the optimizer."""
        return sum(each.phase is not Phase.OPTIMIZER for each in self.program.operations)

    @property
    def end(self) -> int:
        """The point in time after the backward pass."""
        return before(self.operations)

    @cached_property
    def trained(self) -> list[Parameter]:
        """The parameters that require a gradient."""
        return [each for each in self.program.parameters if each.trained]

    @cached_property
    def itemsize(self) -> int:
        """Size in bytes of an element of the trained weights."""
        dtype = self.program.storages[self.trained[0].weight].dtype
        return 4 if dtype is None else min(dtype.itemsize, 4)

    @property
    def copies_weights(self) -> bool:
        """Whether the optimizer's weights have a different dtype than the model's."""
        return self.itemsize != MASTER

    @cached_property
    def groups(self) -> list[list[Parameter]]:
        """The trained parameters of each group of the optimizer."""
        numbers = sorted({each.group for each in self.trained})
        return [[each for each in self.trained if each.group == number] for number in numbers]

    @cached_property
    def gradients(self) -> list[Gradient]:
        """The gradients in the order in which they become ready."""
        storages, found, seen = self.program.storages, [], set[int]()
        for parameter in self.trained:
            if parameter.gradient is None:
                continue
            last = storages[parameter.gradient]
            first, size = parameter.gradient, last.bytes
            while (earlier := storages[first].continues) is not None:
                first = earlier
            if first in seen:  # several gradients in one storage
                size = 0
            seen.add(first)
            used = last.last_used if last.last_used < self.operations else last.born
            found.append(Gradient(parameter, size, storages[first].born, max(last.born, used)))
        return sorted(found, key=lambda each: each.ready)

    def in_gradients(self) -> set[int]:
        """Return the storages that contain gradients or sums of gradients."""
        storages, found = self.program.storages, set[int]()
        for parameter in self.trained:
            number = parameter.gradient
            while number is not None:
                found.add(number)
                number = storages[number].continues
        return found

    def create_gradients(self) -> None:
        """Allocate the gradients in the backward pass."""
        for each in self.gradients:
            self.timeline.allocate(before(each.born), each.bytes, Role.GRADIENTS)

    def hold(self, size: int, role: Role) -> None:
        """Add memory that is in use during the entire step."""
        self.timeline.allocate(before(0), size, role)

    def step(
        self, tensors: Sequence[tuple[tuple[int, ...], Parameter]], *, existing: int = 0
    ) -> None:
        """Record the optimizer's step with float32 gradients, and allocate its state.

        ``tensors`` contains the shape of each updated tensor, and a parameter from the same
        optimizer group. ``existing`` is the number of bytes of gradients that are already counted.
        """
        gradients = MASTER * sum(prod(shape) for shape, _ in tensors)
        temporary = self._state_and_temporary(tensors, gradients)
        self.timeline.allocate(self.end, gradients - existing, Role.GRADIENTS)
        self.timeline.borrow(self.end, temporary, Role.TEMPORARY)
        self.timeline.free(self.end, gradients - existing, Role.GRADIENTS)

    def _state_and_temporary(
        self, tensors: Sequence[tuple[tuple[int, ...], Parameter]], gradients: int
    ) -> int:
        """Allocate the optimizer's state, and return the bytes of the step's temporary results."""
        if self.make is None:
            return 0
        program = Program()
        with fake_card(), torch.enable_grad():
            recorder = Recorder(program, RunningModules(nn.Identity()))
            parameters = [self._tensor(shape, each) for shape, each in tensors]
            with recorder:
                optimizers.record_step(self.make, recorder, parameters, gradients=True)
            recorder.close()
        if self.recorded:  # the step runs after DeepSpeed has released the gradients
            for storage in program.storages:
                if storage.role is Role.GRADIENTS:
                    storage.born, storage.freed = 0, len(program.operations)
        state = program.of_role(Role.OPTIMIZER)
        self.hold(state, Role.OPTIMIZER)
        return peak(program, recorded=self.recorded).bytes - state - gradients

    def _tensor(self, shape: tuple[int, ...], parameter: Parameter) -> nn.Parameter:
        made = nn.Parameter(torch.empty(shape, device=device_type()))
        vars(made)[ORIGINAL] = self.model.get_parameter(parameter.name)
        return made


def padded(elements: int, multiple: int) -> int:
    """Round a number of elements up to a multiple."""
    return ceil(elements / multiple) * multiple
