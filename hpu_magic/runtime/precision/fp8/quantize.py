"""The second step: a measured model computes in 8-bit floating point, and how far that is off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import runs, step
from hpu_magic.runtime.precision.fp8.layer_errors import Difference, LayerError, Reference
from hpu_magic.runtime.precision.fp8.measurements import Measurements
from hpu_magic.runtime.precision.fp8.settings import Settings, settings
from hpu_magic.runtime.present import bars
from hpu_magic.runtime.present.table import Table

_STEP = "QUANTIZE"
_MOST_SHOWN = 40


@dataclass(repr=False)
class QuantizeReport(Table):
    """A quantized model, and what differs from the model before.

    Attributes
    ----------
    model : torch.nn.Module
        The model, the same object as before.
    settings : Settings
        What was asked for.
    layers : list of (str, str)
        Name and class of the quantized layers.
    errors : list of LayerError
        For each of them; empty where no sample was given.
    output : Difference or None
        Of what the model gives; None without a sample, or where a function returns nothing of it.
    """

    model: Any
    settings: Settings
    layers: list[step.Layer]
    errors: list[LayerError] = field(default_factory=list)
    output: Difference | None = None

    def title(self) -> str:
        """Return the headline."""
        kind = type(self.model).__name__
        layers = f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}"
        title = f"{kind} quantized to fp8 ({self.settings.fp8}) on {device.label()}: {layers}"
        if self.output is None:
            return title
        return f"{title}, relative error of the output {_percent(self.output.relative)}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        if not self.errors:
            return ["layer", "class"]
        return ["layer", "class", "relative error", "SQNR", "largest error", "own error"]

    def lines(self) -> Sequence[Sequence[str]]:
        """Return a line for each layer, of many those with the largest errors."""
        if not self.errors:
            return self.layers[:_MOST_SHOWN]
        return [
            [
                *(error.name, error.kind),
                *(_figures(error.total) if error.calls else ("not reached", "", "")),
                _percent(error.own.relative) if error.calls else "",
            ]
            for error in self._worst()
        ]

    def notes(self) -> Sequence[str]:
        """Explain the figures."""
        notes = []
        hidden = len(self.layers) - _MOST_SHOWN
        if hidden > 0:
            which = "with smaller errors are in its attribute `errors`" if self.errors else "follow"
            notes.append(f"{hidden} more layers {which}.")
        method = "dynamic " if self.settings.values.get("dynamic_quantization") else ""
        notes.append(f"Scales: {method}{self.settings.scale_method}.")
        if self.errors:
            notes.append(
                "Errors are those of a layer's output against the model before quantization: with "
                "all layers quantized, and its own, with the inputs that it had before."
            )
        else:
            notes.append("Give a sample of what the model takes to see the error of each layer.")
        return notes

    def warnings(self) -> Sequence[str]:
        """Name what is no number any more."""
        broken = [error.name for error in self.errors if not math.isfinite(error.own.relative)]
        if not broken:
            return []
        return [
            f"{', '.join(broken[:4])} gives values that are not finite, or that were zero: block "
            "it, or choose another scale method."
        ]

    @property
    def picture(self) -> str:
        """The errors of the layers as an SVG image; empty where no sample was given."""
        if not self.errors:
            return ""
        shown = [
            (error.name, 100 * error.total.relative, 100 * error.own.relative)
            for error in self._worst()
            if error.calls
        ]
        return bars.draw(shown, "relative error, all layers in fp8", "the layer's own", " %")

    def html_body(self) -> str:
        """Return table, picture and notes as HTML, without the headline."""
        table, end, notes = super().html_body().partition("</table>")
        return (
            f"{table}{end}<div>{self.picture}</div>{notes}" if self.errors else table + end + notes
        )

    def _worst(self) -> list[LayerError]:
        """Return the layers with the largest errors, in the order of the model."""
        if len(self.errors) <= _MOST_SHOWN:
            return self.errors

        def goodness(error: LayerError) -> tuple[bool, float]:
            return math.isfinite(error.total.relative), -error.total.relative

        worst = {error.name for error in sorted(self.errors, key=goodness)[:_MOST_SHOWN]}
        return [error for error in self.errors if error.name in worst]


class Quantization:
    """A model that is about to be quantized.

    Parameters
    ----------
    model : torch.nn.Module
        Not changed yet.
    settings : Settings
        Of the step ``QUANTIZE``.

    Raises
    ------
    RefusedError
        The process, the model, the settings or the measurements do not fit.
    """

    def __init__(self, model: Any, settings: Settings) -> None:
        step.check_process(_STEP)
        step.check_model(model)
        self.model, self.settings = model, settings
        self.layers = step.layers(model, settings)
        settings.check_method(self.layers, device.generation())
        if settings.needs_measurements:
            Measurements(settings).check(model, self.layers)

    def run(self) -> QuantizeReport:
        """Quantize the model in place."""
        before = {name: self.model.get_submodule(name) for name, _ in self.layers}
        step.begin(_STEP)
        with step.config(self.settings) as config, step.quiet(), step.explained():
            step.compressor().convert(self.model, config)
        step.initialize(self.model)
        changed = [
            (name, kind)
            for name, kind in self.layers
            if self.model.get_submodule(name) is not before[name]
        ]
        return QuantizeReport(self.model, self.settings, changed)


def fp8_quantize(
    model: Any, *sample: Any, config: str | None = None, **given: Any
) -> QuantizeReport:
    """Let a measured model compute in 8-bit floating point.

    Parameters
    ----------
    model : torch.nn.Module
        As it was measured: on the device, in bf16 and in evaluation mode. Changed in place.
    *sample
        Inputs of the model, a dictionary of them by name, or one function that is called with
        the model, to see what quantization changes in each layer.
    config : str, optional
        A JSON file of settings; by default the one that ``QUANT_CONFIG`` names.
    **given
        Single settings by their JSON names, such as ``scale_method`` or ``blocklist``; they win.

    Returns
    -------
    QuantizeReport

    Raises
    ------
    RefusedError
        The process, the model, the settings or the measurements do not fit; nothing has changed.
    """
    quantization = Quantization(model, settings(_STEP, config, **given))
    if not sample:
        return quantization.run()
    reference = Reference(model, quantization.layers, runs.of_sample(model, sample))
    report = quantization.run()
    changed = {name for name, _ in report.layers}
    errors, output = reference.compare(model)
    report.output = output if output.tensors else None
    report.errors = [error for error in errors if error.name in changed]
    return report


def _figures(error: Difference) -> tuple[str, str, str]:
    sqnr = f"{error.sqnr:.1f} dB" if math.isfinite(error.sqnr) else "exact"
    if not math.isfinite(error.relative):
        sqnr = ""
    return _percent(error.relative), sqnr, f"{error.largest:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
