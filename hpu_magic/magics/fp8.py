"""``%hpu_fp8``."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import RESTART, Configured

if TYPE_CHECKING:
    from hpu_magic.runtime.precision.fp8.measure import MeasureReport
    from hpu_magic.runtime.precision.fp8.quantize import QuantizeReport

# Option: the setting that it is.
_SETTINGS = {
    "stats": "dump_stats_path",
    "observer": "observer",
    "scale_method": "scale_method",
    "scale_format": "scale_format",
    "device_for_scales": "device_for_scales",
    "format": "fp8_config",
    "dynamic": "dynamic_quantization",
}


@magics_class
class Fp8Magics(CommandMagics):
    """Inference in 8-bit floating point."""

    comma_separated = frozenset({"allow", "block"})

    @line_magic
    @magic_arguments()
    @argument("step", choices=["measure", "quantize"], help="what this process does; one of them")
    @argument("model", metavar="MODEL", help="a module on the device; dotted names are allowed")
    @argument(
        "sample",
        nargs="*",
        default=[],
        metavar="SAMPLE",
        help="what the model takes (a dictionary: by name), or a function that calls the model",
    )
    @argument("--data", metavar="LOADER", help="measure batches of this loader instead")
    @argument(
        "--batches",
        type=int,
        default=Configured("fp8_batches"),
        metavar="N",
        help="most batches of the loader",
    )
    @argument(
        "--config",
        default=Configured("fp8_config"),
        metavar="FILE",
        help="a JSON file of settings; by default that of QUANT_CONFIG; options win",
    )
    @argument(
        "--stats",
        default=Configured("fp8_stats"),
        metavar="PATH",
        help="folder and beginning of the names of the measurement files",
    )
    @argument("--observer", default=Configured("fp8_observer"), help="what is measured")
    @argument(
        "--scale-method",
        default=Configured("fp8_scale_method"),
        metavar="METHOD",
        help="how scales come from measurements, such as maxabs_hw",
    )
    @argument(
        "--scale-format",
        default=Configured("fp8_scale_format"),
        metavar="FORMAT",
        help="scalar or const",
    )
    @argument(
        "--device-for-scales",
        default=Configured("fp8_device_for_scales"),
        metavar="GENERATION",
        help="whose hardware scales to use, GAUDI2 or GAUDI3",
    )
    @argument("--format", default=Configured("fp8_format"), metavar="FORMAT", help="E4M3 or E5M2")
    @argument(
        "--dynamic",
        action=argparse.BooleanOptionalAction,
        default=Configured("fp8_dynamic"),
        help="calculate scales while the model runs, without measurements",
    )
    @argument(
        "--allow",
        metavar="LIST",
        help="layers, or parts of their names, or classes to quantize, with commas between",
    )
    @argument(
        "--block",
        metavar="LIST",
        help="layers, or parts of their names, or classes to leave in bf16",
    )
    @argument("-o", "--output", metavar="NAME", help="keep the report under this name")
    @RESTART
    def hpu_fp8(self, line: str) -> MeasureReport | QuantizeReport:
        """Let a model compute in 8-bit floating point: measure it, then quantize it.

        Each step needs a process of its own, and one card. Quantizing shows what it changes in
        each layer, where a sample is given. Needs neural-compressor-pt. Examples::

            %hpu_fp8_measure model --inputs batch
            %hpu_fp8_measure model --data loader --batches 16

            %hpu_fp8_quantize model --inputs batch
            %hpu_fp8_quantize model --inputs batch --scale-method maxabs_pow2 --block lm_head
            %hpu_fp8_quantize model --inputs batch --config maxabs_quant.json
        """
        from hpu_magic.runtime.precision.fp8.measure import fp8_measure
        from hpu_magic.runtime.precision.fp8.quantize import fp8_quantize

        options = self.parse(self.hpu_fp8, line)
        self.check_name(options.output)
        given = {name: getattr(options, option) for option, name in _SETTINGS.items()}
        # An empty text is the trait's default: leave it to the file.
        given = {name: value for name, value in given.items() if value not in (None, "")}
        model = self.find(options.model)
        sample = [self.find(name) for name in options.sample]
        given |= self._lists(options, model)
        config = options.config or None
        report: MeasureReport | QuantizeReport
        if options.step == "measure":
            data = None if options.data is None else self.find(options.data)
            report = self._in_own_process(
                *(options.restart, fp8_measure, model, *sample),
                data=data,
                batches=options.batches,
                config=config,
                **given,
            )
        elif options.data is not None:
            raise UsageError("%hpu_fp8_quantize takes a sample, and no --data: leave it out.")
        else:
            report = self._in_own_process(
                options.restart, fp8_quantize, model, *sample, config=config, **given
            )
        return self.keep(options.output, report)

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the words that a setting takes, and files for the settings."""
        from hpu_magic.runtime.precision.fp8.settings import CHOICES

        if argument in _SETTINGS:
            return list(CHOICES.get(_SETTINGS[argument], ()))
        if argument != "config":
            return []
        folder, slash, _ = word.rpartition("/")
        try:
            names = os.listdir(os.path.expanduser(folder + slash) or ".")
        except OSError:
            return []
        return [f"{folder}{slash}{name}" for name in names if name.endswith(".json")]

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is a model, what it takes, or a loader."""
        fitting = {"model": kinds.module, "sample": kinds.of_tensors, "data": kinds.data}
        return argument in fitting and fitting[argument](value)

    def _lists(self, options: argparse.Namespace, model: Any) -> dict[str, dict[str, list[str]]]:
        """Return the lists in their JSON form: a name of a class is one of types."""
        named: Any = getattr(model, "named_modules", None)
        modules = (
            {name: type(module).__name__ for name, module in named()} if callable(named) else {}
        )
        return {
            name: _list(given, modules)
            for name, given in (("allowlist", options.allow), ("blocklist", options.block))
            if given is not None
        }

    def _in_own_process(self, restarts: bool, function: Any, *arguments: Any, **named: Any) -> Any:
        """Call `function`; where the process has done the other step, restart if that is wanted."""
        from hpu_magic.runtime.precision.fp8.step import OtherStepError
        from hpu_magic.runtime.start import restart

        try:
            return self.call(function, *arguments, **named)
        except UsageError as error:
            if not (restarts and isinstance(error.__context__, OtherStepError)):
                raise
        self.call(restart.restart_kernel)
        raise UsageError(
            "The kernel restarts now: build the model again and repeat the command after it."
        )


def _list(given: str, modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return classes, and patterns of names: the whole name of a layer fits no other layer."""
    words = [word.strip() for word in given.split(",") if word.strip()]
    if not words:
        raise UsageError("The list is empty: give names of layers, or of classes such as Linear.")
    classes = set(modules.values())
    return {
        "types": [word for word in words if word in classes],
        "names": [
            rf"^{re.escape(word)}(\.|$)" if word in modules else word
            for word in words
            if word not in classes
        ],
    }
