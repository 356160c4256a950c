"""The second step: quantize a measured model, and compare its results before and after."""

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
    """A quantized model, and its errors relative to the model before quantization."""

    model: Any  #: the model, which is the same object as before quantization
    settings: Settings  #: the quantization settings
    layers: list[step.Layer]  #: names and classes of the quantized layers
    errors: list[LayerError] = field(default_factory=list)  #: one per layer; empty without a sample
    output: Difference | None = None
    """Error of the model's output; None without a sample, or if a function returns no tensors."""

    def title(self) -> str:
        """Return the headline."""
        kind = type(self.model).__name__
        layers = f"{len(self.layers)} layer{'s' * (len(self.layers) != 1)}"
        title = f"{kind} quantized to fp8 ({self.settings.fp8}) on {device.label()}: {layers}"
        if self.output is None:
            return title
        return f"{title}, relative output error {_percent(self.output.relative)}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        if not self.errors:
            return ["layer", "class"]
        return ["layer", "class", "relative error", "SQNR", "largest error", "own error"]

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line per layer; if there are many, only those with the largest errors."""
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
        """Return notes that explain the values."""
        notes = []
        hidden = len(self.layers) - _MOST_SHOWN
        if hidden > 0:
            attribute = "errors" if self.errors else "layers"
            notes.append(f"{hidden} more layers are listed in the attribute `{attribute}`.")
        method = "dynamic " if self.settings.values.get("dynamic_quantization") else ""
        notes.append(f"Scales: {method}{self.settings.scale_method}.")
        if self.errors:
            notes.append(
                "Errors compare the output of a layer with the output before quantization, with "
                "all layers quantized. A layer's own error is computed with the input that it had "
                "before quantization."
            )
        else:
            notes.append("Pass a sample of the model's inputs to see the error of each layer.")
        return notes

    def warnings(self) -> Sequence[str]:
        """Return a warning about layers whose error is not finite."""
        broken = [error.name for error in self.errors if not math.isfinite(error.own.relative)]
        if not broken:
            return []
        return [
            f"The output of {', '.join(broken[:4])} is not finite, or was zero before "
            f"quantization: block {'it' if len(broken) == 1 else 'them'}, or use another scale "
            f"method."
        ]

    @property
    def picture(self) -> str:
        """The errors of the layers as an SVG image, or an empty string without a sample."""
        if not self.errors:
            return ""
        shown = [
            (error.name, 100 * error.total.relative, 100 * error.own.relative)
            for error in self._worst()
            if error.calls
        ]
        return bars.draw(shown, "relative error, all layers in fp8", "the layer's own", " %")

    def html_table(self) -> str:
        """Return the table and the image as HTML."""
        picture = f"<div>{self.picture}</div>" if self.errors else ""
        return super().html_table() + picture

    def _worst(self) -> list[LayerError]:
        """Return the layers with the largest errors, in model order."""
        if len(self.errors) <= _MOST_SHOWN:
            return self.errors

        def goodness(error: LayerError) -> tuple[bool, float]:
            return math.isfinite(error.total.relative), -error.total.relative

        worst = {error.name for error in sorted(self.errors, key=goodness)[:_MOST_SHOWN]}
        return [error for error in self.errors if error.name in worst]


class Quantization:
    """A model that has been checked and can be quantized; only `run` changes it.

    Raises `HPUError` if the process, the model, the settings or the measurements are unsuitable.
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


def quantize(model: Any, inputs: Any, *, config: str | None, **overrides: Any) -> QuantizeReport:
    """Quantize a measured model to FP8, in place; see `hpu_magic.fp8_quantize`.

    ``overrides`` are settings, keyed by their names in the JSON file.
    """
    quantization = Quantization(model, settings(_STEP, config, **overrides))
    if inputs is None:
        return quantization.run()
    reference = Reference(model, quantization.layers, runs.of_inputs(model, inputs))
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
