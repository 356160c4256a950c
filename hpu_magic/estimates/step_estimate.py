"""Trace a step, distribute it across cards, and calculate its cost."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from hpu_magic.estimates.by_module import OPTIMIZER, shares
from hpu_magic.estimates.calls import Call
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import price
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.largest_batch import largest_batch
from hpu_magic.estimates.layout import Layout, check_without_training
from hpu_magic.estimates.memory import Moment, curve, peak
from hpu_magic.estimates.options import Options
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.shared_memory import (
    collective_buffers,
    sizes_on_one_card,
    with_optimizer_copies,
)
from hpu_magic.estimates.stages import check_stages
from hpu_magic.estimates.tracing.program import Phase, Program
from hpu_magic.estimates.tracing.step import trace_step


class StepEstimator:
    """Estimates a step of a model for any batch size.

    Raises `EstimateError` if the layout is not suitable for the model, or if it uses ZeRO without
    training.
    """

    def __init__(
        self, model: nn.Module, call: Call, options: Options, card: Generation, layout: Layout
    ) -> None:
        check_stages(model, layout)
        if not options.train:
            check_without_training(layout)
        self._model, self._call = model, call
        self._options, self._card, self._layout = options, card, layout

    def of_batch(self) -> Estimate:
        """Return the estimate for the batch size in the options."""
        return self.of(self._traced(self._options.step.batch))

    def largest(self) -> Estimate:
        """Return the estimate for the largest batch that fits.

        Raises `EstimateError` if not even one sample fits, or if all inputs are zero-dimensional.
        """
        batch, programs = self._search()
        if not batch:
            smallest = self.of(programs[1])
            raise EstimateError(
                f"A batch of 1 needs {smallest.memory_text}, which does not fit on a card: "
                'distribute the model (parallel="zero3"), recompute activations '
                '(checkpointing="full"), or train fewer parameters.'
            )
        return replace(self.of(programs[batch]), largest=batch)

    def largest_batch(self) -> int:
        """Return the largest batch that fits on a card; 0 if none fits."""
        return self._search()[0]

    def _search(self) -> tuple[int, dict[int, Program]]:
        """Return the largest batch that fits, and the programs that were traced to find it."""
        original = self._traced(None)
        programs = {original.samples: original} if original.samples else {}

        def memory_of(batch: int) -> int:
            if batch not in programs:
                programs[batch] = self._traced(batch)
            program = programs[batch]
            return self._peak(program).bytes + collective_buffers(program, self._layout)

        return largest_batch(memory_of, self._card.memory, original.samples or 1), programs

    def _traced(self, batch: int | None) -> Program:
        return trace_step(self._model, *self._call, self._options.with_batch(batch))

    @property
    def _recorded(self) -> bool:
        return self._options.mode != "eager"

    def _peak(self, program: Program) -> Moment:
        program = with_optimizer_copies(program, self._layout)
        sizes = sizes_on_one_card(program, self._layout)
        return peak(program, recorded=self._recorded, sizes=sizes)

    def of(self, program: Program) -> Estimate:
        """Return the estimate of a traced step."""
        options, layout = self._options, self._layout
        prices = price(
            program,
            self._card,
            mode=options.mode,
            dtype=options.dtype,
            layout=layout,
            accumulate=options.accumulate,
        )
        if not prices.seconds:
            raise EstimateError(
                f"{type(self._model).__name__} does not run any operations on the card with these "
                "inputs: pass inputs that it uses in its computations."
            )
        resident = with_optimizer_copies(program, layout)
        sizes = sizes_on_one_card(resident, layout)
        moment = peak(resident, recorded=self._recorded, sizes=sizes)
        times = [
            (
                OPTIMIZER if operation.phase is Phase.OPTIMIZER else operation.module,
                cost.seconds,
                cost.limit,
            )
            for operation, cost in zip(program.operations, prices.operations, strict=True)
        ]
        return Estimate(
            program=program,
            model=type(self._model).__name__,
            options=options,
            card=self._card,
            layout=layout,
            prices=prices,
            memory_curve=curve(resident, recorded=self._recorded, sizes=sizes),
            moment=moment,
            exchanged=collective_buffers(program, layout),
            modules=shares(
                {**program.classes, OPTIMIZER: options.optimizer}, times, moment.by_module
            ),
            find_largest=self.largest_batch,
        )
