"""The first step: what the layers of a model meet on typical data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import units
from hpu_magic.errors import RefusedError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import runs, step
from hpu_magic.runtime.precision.fp8.measurements import Measurements, Range
from hpu_magic.runtime.precision.fp8.settings import Settings, settings
from hpu_magic.runtime.present.table import Table
from hpu_magic.runtime.start import restart

_STEP = "MEASURE"


@dataclass(repr=False)
class MeasureReport(Table):
    """The largest magnitudes that the layers of a model met.

    Attributes
    ----------
    model : str
        The model's class.
    layers : list of (str, str)
        Name and class of what was to be measured.
    ranges : dict of str to Range
        What was measured; a layer that the data did not reach is not there.
    file : str
        Where it is kept.
    runs : int
        How often the model was run.
    """

    model: str
    layers: list[step.Layer]
    ranges: dict[str, Range]
    file: str
    runs: int = 0

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
        """Return a line for each layer that was reached."""
        columns = len(self.columns())
        return [
            [name, kind, *_shown(self.ranges[name])][:columns]
            for name, kind in self.layers
            if name in self.ranges
        ]

    def notes(self) -> Sequence[str]:
        """Say where the measurements are, and what comes next."""
        how = (
            "restart the kernel, build the model again and type %hpu_fp8 quantize MODEL SAMPLE."
            if restart.interactive()
            else "call hpu_magic.fp8_quantize(model, sample) there."
        )
        return [
            f"Kept in {self.file} and beside it.",
            f"The second step needs a process of its own: {how}",
        ]

    def warnings(self) -> Sequence[str]:
        """Name the layers that the data did not reach, and those that have no scale."""
        missed = [name for name, _ in self.layers if name not in self.ranges]
        broken = [name for name, found in self.ranges.items() if not found.is_finite]
        warnings = []
        if missed:
            warnings.append(
                f"The data did not reach {', '.join(missed)}: such a layer cannot be quantized. "
                "Give data that reaches it, or block it."
            )
        if broken:
            warnings.append(
                f"What {', '.join(broken)} met is not finite, and has no scale: measure again with "
                "other data, or block it."
            )
        return warnings

    @property
    def _has_outputs(self) -> bool:
        return any(found.outputs for found in self.ranges.values())


class Measurement:
    """A model that is being measured, from its preparation to its files.

    Parameters
    ----------
    model : torch.nn.Module
        Changed in place: its layers observe what they are given.
    settings : Settings
        Of the step ``MEASURE``.

    Raises
    ------
    RefusedError
        The process, the model or the settings do not fit.
    """

    def __init__(self, model: Any, settings: Settings) -> None:
        step.check_process(_STEP)
        step.check_model(model)
        self.model, self.settings = model, settings
        self.layers = step.layers(model, settings)
        if settings.values.get("dynamic_quantization"):
            raise RefusedError("Dynamic quantization needs no measurements: quantize at once.")
        Measurements(settings).check_folder()

    def begin(self) -> None:
        """Let the layers observe."""
        step.begin(_STEP)
        with step.config(self.settings) as config, step.quiet(), step.explained():
            step.compressor().prepare(self.model, config)
        step.initialize(self.model)

    def finish(self, number: int = 0) -> MeasureReport:
        """Write the files and return what is in them; `number` is that of the runs."""
        with step.explained():
            step.compressor().finalize_calibration(self.model)
        measurements = Measurements(self.settings)
        measurements.write_origin(self.model, self.layers)
        kind = type(self.model).__name__
        return MeasureReport(kind, self.layers, measurements.read(), str(measurements.file), number)


def fp8_measure(
    model: Any,
    *sample: Any,
    data: Iterable[Any] | None = None,
    batches: int | None = None,
    config: str | None = None,
    **given: Any,
) -> MeasureReport:
    """Measure what the layers of a model meet, for their scales in 8-bit floating point.

    Parameters
    ----------
    model : torch.nn.Module
        On the device, in bf16 and in evaluation mode; its layers observe from now on.
    *sample
        Inputs of the model, a dictionary of them by name, or one function that is called with
        the model.
    data : iterable, optional
        A loader of batches, in place of a sample. A batch is a tensor, a dictionary of inputs
        by name, or a tuple that begins with the inputs that the model requires.
    batches : int, optional
        Most batches to take.
    config : str, optional
        A JSON file of settings; by default the one that ``QUANT_CONFIG`` names.
    **given
        Single settings by their JSON names, such as ``observer`` or ``dump_stats_path``; they win.

    Returns
    -------
    MeasureReport

    Raises
    ------
    RefusedError
        The process, the model, its data or the settings do not fit; nothing has changed.
    """
    if bool(sample) == (data is not None):
        raise RefusedError("Give either a sample of what the model takes, or data: a loader.")
    measurement = Measurement(model, settings(_STEP, config, **given))
    if data is None:
        wanted = iter([runs.of_sample(model, sample)])
    else:
        wanted = runs.of_batches(model, data, batches)
    first = next(wanted, None)
    if first is None:
        raise RefusedError("The data has no batches.")
    import torch

    with torch.no_grad():
        if not runs.is_function(sample):
            first(model)  # what it does not take is found before anything is changed
        measurement.begin()
        first(model)
        number = 1
        for run in wanted:
            run(model)
            number += 1
    return measurement.finish(number)


def _shown(found: Range) -> list[str]:
    def largest(values: tuple[float, ...]) -> str:
        return ", ".join(units.value(value) for value in values)

    weight = "" if found.weight is None else units.value(found.weight)
    return [largest(found.inputs), weight, largest(found.outputs)]
