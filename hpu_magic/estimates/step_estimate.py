"""Trace a step, distribute it across cards, and calculate its cost."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from hpu_magic.estimates.by_module import OPTIMIZER, shares
from hpu_magic.estimates.calls import Call
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import price
from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.deepspeed.memory import of_step
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.experts import on_busiest_card
from hpu_magic.estimates.largest_batch import largest_batch
from hpu_magic.estimates.layout import Layout, check_without_training
from hpu_magic.estimates.memory import Memory, curve, peak
from hpu_magic.estimates.options import Options
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.shared_memory import (
    collective_buffers,
    sizes_on_one_card,
    with_optimizer_copies,
)
from hpu_magic.estimates.stages import check_stages
from hpu_magic.estimates.tracing.program import Phase, Program
from hpu_magic.estimates.tracing.step import StepOptions, trace_step


class StepEstimator:
    """Estimates a step of a model for any batch size.

    ``known`` contains the traces of the step, to which new ones are added.

    Raises `EstimateError` if the layout is not suitable for the model, or if it uses ZeRO without
    training.
    """

    def __init__(
        self,
        model: nn.Module,
        call: Call,
        options: Options,
        card: Generation,
        layout: Layout,
        deepspeed: Configuration | None = None,
        known: dict[StepOptions, Program] | None = None,
    ) -> None:
        check_stages(model, layout)
        if not options.train:
            check_without_training(layout)
        self._model, self._call = model, call
        self._options, self._card, self._layout = options, card, layout
        self._deepspeed = deepspeed
        self._known = {} if known is None else known

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
            return self._memory(on_busiest_card(programs[batch], self._layout)).peak

        return largest_batch(memory_of, self._card.memory, original.samples or 1), programs

    def _traced(self, batch: int | None) -> Program:
        options = self._options.with_batch(batch)
        if self._deepspeed is not None and self._deepspeed.stage > 1:
            # The gradients of earlier batches are in buffers of DeepSpeed.
            options = replace(options, accumulating=False)
        # All traces have the same optimizer and loss, which may not be hashable.
        key = replace(options, optimizer=None, loss=None)
        if key not in self._known:
            self._known[key] = trace_step(self._model, *self._call, options)
        return self._known[key]

    @property
    def _recorded(self) -> bool:
        return self._options.mode != "eager"

    def _memory(self, program: Program) -> Memory:
        if self._deepspeed is not None:
            return of_step(
                program,
                self._deepspeed,
                self._layout.cards,
                model=self._model,
                make=self._options.step.optimizer,
                recorded=self._recorded,
            )
        resident = with_optimizer_copies(program, self._layout)
        sizes = sizes_on_one_card(resident, self._layout)
        return Memory(
            curve(resident, recorded=self._recorded, sizes=sizes),
            peak(resident, recorded=self._recorded, sizes=sizes),
            collective_buffers(program, self._layout),
        )

    def of(self, program: Program) -> Estimate:
        """Return the estimate of a traced step."""
        options, layout = self._options, self._layout
        program = on_busiest_card(program, layout)
        prices = price(
            program,
            self._card,
            mode=options.mode,
            dtype=options.dtype,
            layout=layout,
            accumulate=options.accumulate,
            fused_attention=options.attention == "fused",
            deepspeed=self._deepspeed,
        )
        if not prices.seconds:
            raise EstimateError(
                f"{type(self._model).__name__} does not run any operations on the card with these "
                "inputs: pass inputs that it uses in its computations."
            )
        memory = self._memory(program)
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
            memory_curve=memory.curve,
            moment=memory.moment,
            exchanged=memory.exchanged,
            modules=shares(
                {**program.classes, OPTIMIZER: options.optimizer}, times, memory.moment.by_module
            ),
            find_largest=self.largest_batch,
        )
