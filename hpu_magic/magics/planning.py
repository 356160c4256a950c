"""``%hpu_estimate``, ``%hpu_estimate_generation`` and ``%hpu_advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import advising, planning
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.advice.report import Advice
    from hpu_magic.estimates.generation.result import GenerationEstimate
    from hpu_magic.estimates.result import Estimate


@magics_class
class PlanningMagics(CommandMagics):
    """Estimates and advice."""

    @line_magic
    @options_of(planning.estimate)
    def hpu_estimate(self, line: str) -> Estimate:
        """Estimate the time and memory of a step on Gaudi cards that you do not have.

        Nothing is computed. The inputs can be on any device, because only their shapes and dtypes
        matter. Examples::

            %hpu_estimate model --inputs tokens
            %hpu_estimate model --inputs x,y --loss loss_of --card gaudi3
            %hpu_estimate model --inputs batch --cards 8 --parallel zero3 --batch largest
            %hpu_estimate model --inputs x --no-train --mode graphs --dtype bf16
            %hpu_estimate mixtral --inputs tokens --cards 8 --expert-parallel 8 --imbalance 1.5
        """
        return self.run(self.hpu_estimate, line)

    @line_magic
    @options_of(planning.estimate_generation)
    def hpu_estimate_generation(self, line: str) -> GenerationEstimate:
        """Estimate the time and memory of text generation on Gaudi cards that you do not have.

        The model must be a causal language model from transformers. The model can be on the meta
        device, without weights. Examples::

            %hpu_estimate_generation model --prompt 512 --new-tokens 128
            %hpu_estimate_generation model --prompt 512 --new-tokens 128 --batch largest
            %hpu_estimate_generation model --prompt 1024 --new-tokens 64 --card gaudi3 --cards 2
        """
        return self.run(self.hpu_estimate_generation, line)

    @line_magic
    @options_of(advising.advise)
    def hpu_advise(self, line: str) -> Advice:
        """Suggest changes that save time or memory in a step, starting with the largest gain.

        Gains are estimates with an error band, or are based on the measurements of a fit. Each
        change is shown as code; --apply N applies change N if a command exists for it. Examples::

            %hpu_advise model --inputs tokens
            %hpu_advise model --inputs x,y --loss loss_of --card gaudi3
            %hpu_advise model --inputs batch --cards 8 --observed result -o advice
            %hpu_advise model --inputs x --apply 1
        """
        return self.run(self.hpu_advise, line)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return suggestions for options that also accept other values."""
        known = {
            "optimizer": ["adamw", "adam", "fusedadamw", "sgd", "none"],
            "parallel": ["ddp", "fsdp", "zero1", "zero2", "zero3", "tp=2", "pp=2"],
            "batch": ["largest"],
        }
        return known.get(argument, [])
