"""Assigns the work of a step to phases and modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_FORWARD, _BACKWARD, _OTHER = "forward", "backward", "other"


class Labels:
    """Labels all work with its phase and the number of its module.

    In lazy mode, operators keep the label with which they are recorded.
    """

    def __init__(self, native: Any) -> None:
        self._engine = native
        self._numbers: dict[tuple[str, int], int] = {}
        self.places: list[tuple[str, int]] = []
        """The phase and the module number of each label."""
        self._phases: list[str] = []  # phases that contain others, such as an optimizer step
        self._outside = _OTHER  # the phase outside all modules
        self._running: list[int] = []
        self._in_backward = 0
        self._nodes: set[int] = set()  # sequence numbers of autograd nodes that have a label
        self._mark()

    def install(self) -> None:
        """Observe all backward passes."""
        # `torch.autograd` has its own reference to this function.
        for module in (torch.autograd, torch.autograd.graph):
            place: Any = module
            original = place._engine_run_backward

            def run(*args: Any, original: Any = original, **kwargs: Any) -> Any:
                self._in_backward += 1
                self._mark()
                try:
                    return original(*args, **kwargs)
                finally:
                    self._in_backward -= 1
                    self._outside = _OTHER
                    self._mark()

            place._engine_run_backward = run

    def enter(self, module: int) -> None:
        """Record that the module with this number starts to run."""
        self._running.append(module)
        self._mark()

    def leave(self) -> None:
        """Record that the innermost running module has ended."""
        self._running.pop()
        if not self._running and not self._in_backward and torch.is_grad_enabled():
            self._outside = _FORWARD  # the loss may be computed outside the model
        self._mark()

    def creates(self, module: int, tensors: Iterable[torch.Tensor]) -> None:
        """Record that a module created tensors, so that their autograd nodes belong to it."""
        for tensor in tensors:
            node = tensor.grad_fn
            if node is None or (sequence := node._sequence_nr()) in self._nodes:
                continue
            self._nodes.add(sequence)
            node.register_prehook(lambda _, module=module: self._mark(module))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Assign all work to a phase."""
        self.begin(phase)
        try:
            yield
        finally:
            self.end()

    def begin(self, phase: str) -> None:
        """Assign all work to a phase until `end` is called."""
        self._phases.append(phase)
        self._mark()

    def end(self) -> None:
        """End the phase that began last."""
        self._phases.pop()
        self._outside = _OTHER
        self._mark()

    def _mark(self, node_of: int = 0) -> None:
        if self._phases:
            phase, module = self._phases[-1], 0
        elif self._in_backward:
            # A module that runs in the backward pass recomputes its activations.
            phase, module = _BACKWARD, self._running[-1] if self._running else node_of
        elif self._running:
            phase, module = _FORWARD, self._running[-1]
        else:
            phase, module = self._outside, 0
        place = phase, module
        number = self._numbers.get(place)
        if number is None:
            number = self._numbers[place] = len(self.places)
            self.places.append(place)
        self._engine.set_label(number)

    def step_ended(self) -> None:
        """Forget the autograd nodes of the step."""
        self._nodes.clear()
