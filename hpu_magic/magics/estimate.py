"""``%hpu_estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.settings import Configured
from hpu_magic.magics.step import StepMagics, step_options

if TYPE_CHECKING:
    from hpu_magic.estimates.estimate import Estimate


@magics_class
class EstimateMagics(StepMagics):
    """What a step would take on cards that are not here."""

    @line_magic
    @magic_arguments()
    @step_options(
        generation=Configured("estimate_generation"),
        mode=Configured("estimate_mode"),
        precision=Configured("estimate_precision"),
        optimizer="adamw",
        defaults=("this process's", "adamw"),
    )
    @argument("-o", "--output", metavar="NAME", help="keep the estimate under this name")
    def hpu_estimate(self, line: str) -> Estimate:
        """Estimate a step's time and memory on Gaudi cards, without a card and without computing.

        Shapes and types of the inputs count, so they may be on any device. Examples::

            %hpu_estimate model --inputs tokens
            %hpu_estimate model --inputs x,y --loss loss_of --card gaudi3
            %hpu_estimate model --inputs batch --cards 8 --parallel zero3 --batch largest
            %hpu_estimate model --inputs x --no-train --mode graphs --dtype bf16
        """
        from hpu_magic.estimates.estimate import estimate

        options = self.parse(self.hpu_estimate, line)
        self.check_name(options.output)
        model, inputs, arguments = self.step("hpu_estimate", options)
        report = self.call(estimate, model, *inputs, **arguments)
        return self.keep(options.output, report)
