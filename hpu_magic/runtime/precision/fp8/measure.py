"""The first step: measure the values in a model's layers on representative data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import units
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import runs, step
from hpu_magic.runtime.precision.fp8.measurements import Measurements, Range
from hpu_magic.runtime.precision.fp8.settings import Settings, settings
from hpu_magic.runtime.present.table import Table
from hpu_magic.runtime.start import restart

_STEP = "MEASURE"


@dataclass(repr=False)
class MeasureReport(Table):
    """The largest magnitudes of the values in a model's layers."""

    model: str  #: the model's class
    layers: list[step.Layer]  #: names and classes of the selected layers
    ranges: dict[str, Range]
    """The measurements by layer; layers that the data did not reach are missing."""
    file: str  #: the file that contains the measurements
    runs: int = 0  #: number of times the model was run

    def title(self) -> str:
        """Return the headline."""
        times = f", {self.runs} run{'s' * (self.runs != 1)}" if self.runs else ""
        layers = f"{len(self.ranges)} layer{'s' * (len(self.ranges) != 1)}"
        return f"{self.model} measured for fp8 on {device.label()}: {layers}{times}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        columns = ["layer", "class", "largest input", "largest weight"]
        return [*columns, "largest output"] if self._has_outputs else columns

    def lines(self) -> Sequence[Sequence[str]]:
        """Return one line for each layer that the data reached."""
        columns = len(self.columns())
        return [
            [name, kind, *_shown(self.ranges[name])][:columns]
            for name, kind in self.layers
            if name in self.ranges
        ]

    def notes(self) -> Sequence[str]:
        """Return notes on where the measurements are stored and on the next step."""
        how = (
            "restart the kernel, create the model again and type "
            "%hpu_fp8_quantize MODEL --inputs x."
            if restart.interactive()
            else "call hpu_magic.fp8_quantize(model, inputs) there."
        )
        return [
            f"The measurements are stored in {self.file} and in files next to it.",
            f"The second step must run in a separate process: {how}",
        ]

    def warnings(self) -> Sequence[str]:
        """Return warnings about layers that the data did not reach or that have no scale."""
        missed = [name for name, _ in self.layers if name not in self.ranges]
        broken = [name for name, measured in self.ranges.items() if not measured.is_finite]
        warnings = []
        if missed:
            warnings.append(
                f"The data did not reach {', '.join(missed)}: measure again with data that reaches "
                "all layers, or block these layers."
            )
        if broken:
            warnings.append(
                f"Values in {', '.join(broken)} are not finite, so they have no scale: measure "
                "again with other data, or block these layers."
            )
        return warnings

    @property
    def _has_outputs(self) -> bool:
        return any(measured.outputs for measured in self.ranges.values())


class Measurement:
    """Prepares and measures a model, and writes the measurements to files.

    The layers of the model are changed in place to measure their inputs and outputs. Raises
    `HPUError` if the process, the model or the settings are unsuitable.
    """

    def __init__(self, model: Any, settings: Settings) -> None:
        step.check_process(_STEP)
        step.check_model(model)
        self.model, self.settings = model, settings
        self.layers = step.layers(model, settings)
        if settings.values.get("dynamic_quantization"):
            raise HPUError(
                "Dynamic quantization does not need measurements: quantize the model directly."
            )
        Measurements(settings).check_folder()

    def begin(self) -> None:
        """Prepare the layers for measurement."""
        step.begin(_STEP)
        with step.config(self.settings) as config, step.quiet(), step.explained():
            step.compressor().prepare(self.model, config)
        step.initialize(self.model)

    def finish(self, number: int = 0) -> MeasureReport:
        """Write the files and return a report of their contents; `number` is the number of runs."""
        with step.explained():
            step.compressor().finalize_calibration(self.model)
        measurements = Measurements(self.settings)
        measurements.write_origin(self.model, self.layers)
        kind = type(self.model).__name__
        return MeasureReport(kind, self.layers, measurements.read(), str(measurements.file), number)


def measure(
    model: Any,
    inputs: Any,
    *,
    data: Iterable[Any] | None,
    batches: int | None,
    config: str | None,
    **overrides: Any,
) -> MeasureReport:
    """Measure the values in each layer of a model; see `hpu_magic.fp8_measure`.

    ``overrides`` are settings, keyed by their names in the JSON file.
    """
    if (inputs is None) == (data is None):
        raise HPUError(
            "Measuring requires either inputs or data: type %hpu_fp8_measure model --inputs x, or "
            "%hpu_fp8_measure model --data loader."
        )
    measurement = Measurement(model, settings(_STEP, config, **overrides))
    if data is None:
        pending = iter([runs.of_inputs(model, inputs)])
    else:
        pending = runs.of_batches(model, data, batches)
    first = next(pending, None)
    if first is None:
        raise HPUError("The data has no batches.")
    import torch

    with torch.no_grad():
        if not runs.is_function(inputs):
            first(model)  # raises an error for wrong arguments before anything is changed
        measurement.begin()
        first(model)
        number = 1
        for run in pending:
            run(model)
            number += 1
    return measurement.finish(number)


def _shown(measured: Range) -> list[str]:
    def largest(values: tuple[float, ...]) -> str:
        return ", ".join(units.value(value) for value in values)

    weight = "" if measured.weight is None else units.value(measured.weight)
    return [largest(measured.inputs), weight, largest(measured.outputs)]
