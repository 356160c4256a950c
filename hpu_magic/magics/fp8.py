"""``%hpu_fp8_measure`` and ``%hpu_fp8_quantize``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import precision as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.runtime.precision.fp8.measure import MeasureReport
    from hpu_magic.runtime.precision.fp8.quantize import QuantizeReport


@magics_class
class Fp8Magics(CommandMagics):
    """FP8 inference."""

    @line_magic
    @options_of(commands.fp8_measure)
    def hpu_fp8_measure(self, line: str) -> MeasureReport:
        """Measure the values in each layer of a model, which is the first step of FP8 inference.

        The second step, %hpu_fp8_quantize, must run in a new process. Needs neural-compressor-pt
        and one card. Examples::

            %hpu_fp8_measure model --inputs batch
            %hpu_fp8_measure model --data loader --batches 16
        """
        return self.run(self.hpu_fp8_measure, line)

    @line_magic
    @options_of(commands.fp8_quantize)
    def hpu_fp8_quantize(self, line: str) -> QuantizeReport:
        """Quantize a measured model to FP8, and show the error of each layer.

        The first step, %hpu_fp8_measure, must have run in another process. Without --inputs, the
        errors are not shown. Needs neural-compressor-pt and one card. Examples::

            %hpu_fp8_quantize model --inputs batch
            %hpu_fp8_quantize model --inputs batch --scale-method maxabs_pow2 --block lm_head
            %hpu_fp8_quantize model --inputs batch --config maxabs_quant.json
        """
        return self.run(self.hpu_fp8_quantize, line)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the choices for a setting, or the JSON files for ``--config``."""
        from hpu_magic.runtime.precision.fp8.settings import CHOICES

        if argument != "config":
            return list(CHOICES.get(argument, ()))
        folder, slash, _ = word.rpartition("/")
        try:
            names = os.listdir(os.path.expanduser(folder + slash) or ".")
        except OSError:
            return []
        return [f"{folder}{slash}{name}" for name in names if name.endswith(".json")]
