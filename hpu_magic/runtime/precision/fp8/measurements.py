"""Read and describe the files that a measurement produces, and check that a model matches them."""

from __future__ import annotations

import json
import math
import os
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8.settings import CHOICES, Settings
from hpu_magic.runtime.precision.fp8.step import Layer

_MENTIONED = 4
# The maximum values are stored in bf16.
_TOLERANCE = 2.0**-7


@dataclass(frozen=True)
class Range:
    """The largest magnitudes of the values in a layer."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    """The largest magnitude of each input and of each measured output."""
    weight: float | None  # largest magnitude of the layer's weight

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite."""
        weight = () if self.weight is None else (self.weight,)
        return all(map(math.isfinite, (*self.inputs, *self.outputs, *weight)))


class Measurements:
    """The measurement files that belong to the name prefix and observer in the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.file = Path(f"{settings.stats}_hooks_{settings.observer}.json")
        self.arrays = self.file.with_suffix(".npz")  # read by Neural Compressor
        self.origin = Path(f"{settings.stats}_origin.json")

    def read(self) -> dict[str, Range]:
        """Return the value ranges by layer; raise `HPUError` if there are no measurements."""
        if not (self.file.is_file() and self.arrays.is_file()):
            raise HPUError(self._nothing_there())
        try:
            nodes = json.loads(self.file.read_text(encoding="utf-8"))["Nodes"]
            ranges = {name: _range(node) for name, node in nodes.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise HPUError(
                f"{self.file} contains no measurements ({error}): measure the model again."
            ) from None
        if not zipfile.is_zipfile(self.arrays):  # the file may be incomplete
            raise HPUError(f"{self.arrays} contains no measurements: measure the model again.")
        return ranges

    def check_folder(self) -> None:
        """Raise `HPUError` if the folder is not writable; call this before a long measurement."""
        folder = self.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, ValueError) as error:
            raise HPUError(
                f"Measurements cannot be written to {self.settings.stats!r} ({error}): set another "
                "path (dump_stats_path)."
            ) from None

    def write_origin(self, model: Any, layers: Iterable[Layer]) -> None:
        """Write a file with the generation, model and layers that were measured."""
        kept = {
            "generation": device.generation(),
            "model": type(model).__name__,
            "layers": dict(layers),
        }
        self.origin.write_text(json.dumps(kept, indent=4) + "\n", encoding="utf-8")

    def check(self, model: Any, layers: Iterable[Layer]) -> None:
        """Raise `HPUError` unless the measurements match the model, its weights and this card."""
        ranges, (generation, kinds), layers = self.read(), self._read_origin(), list(layers)
        self._check_generation(generation)
        modules = {name: type(module).__name__ for name, module in model.named_modules()}
        lacking = [name for name in ranges if name not in modules]
        other = [name for name in ranges if kinds.get(name, modules.get(name)) != modules.get(name)]
        if lacking or other:
            named = _named(lacking or other)
            what = f"has no {named}" if lacking else f"has a different layer class at {named}"
            raise HPUError(
                f"The measurements {self.file} are from a different model: this "
                f"{type(model).__name__} {what}. Measure it, or set the path of its measurements "
                f"(dump_stats_path)."
            )
        missing = [name for name, _ in layers if name not in ranges]
        if missing and not self.settings.skips_unmeasured:
            raise HPUError(
                f"{_named(missing)} has no measurement in {self.file}: measure again with data "
                "that reaches it, put it in the blocklist, or set ignore_modules_wo_measures."
            )
        self._check_weights(model, {name: ranges[name] for name, _ in layers if name in ranges})

    def _check_generation(self, measured: str | None) -> None:
        here = device.generation()
        wanted = {here, self.settings.values.get("device_for_scales")}
        if measured is not None and here is not None and measured not in wanted:
            raise HPUError(
                f"The measurements {self.file} are from a {measured}, but this card is a {here}: "
                f"measure the model on this card."
            )

    def _check_weights(self, model: Any, ranges: dict[str, Range]) -> None:
        for name, measured in ranges.items():
            weight = getattr(model.get_submodule(name), "weight", None)
            if weight is None or measured.weight is None:
                continue
            largest = float(weight.detach().abs().max())
            if abs(largest - measured.weight) > _TOLERANCE * max(largest, measured.weight):
                raise HPUError(
                    f"The measurements {self.file} were made with different weights: the largest "
                    f"weight of {name!r} is {largest:.4g}, but was {measured.weight:.4g}. Measure "
                    f"this model."
                )

    def _read_origin(self) -> tuple[str | None, dict[str, str]]:
        """Return the generation and layers, or empty values if another program measured them."""
        try:
            origin = json.loads(self.origin.read_text(encoding="utf-8"))
            generation, layers = origin["generation"], dict(origin["layers"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None, {}
        return (generation if isinstance(generation, str) else None), layers

    def _nothing_there(self) -> str:
        folder = self.file.parent
        start = f"{os.path.basename(self.settings.stats)}_hooks_"
        others = [
            observer
            for observer in CHOICES["observer"]
            if (folder / f"{start}{observer}.npz").is_file() and observer != self.settings.observer
        ]
        if others:
            return (
                f"There are no measurements for the observer {self.settings.observer!r} at "
                f"{self.settings.stats!r}, only for {', '.join(others)}: set that observer, or "
                f"measure again."
            )
        return (
            f"There are no measurements at {self.settings.stats!r}: type %hpu_fp8_measure MODEL "
            "--inputs x in another process first, or set the path of other measurements "
            "(dump_stats_path)."
        )


def _range(node: dict[str, Any]) -> Range:
    weight = node.get("params", {}).get("weight")
    inputs = tuple(map(_largest, node.get("inputs", ())))
    outputs = tuple(map(_largest, node.get("outputs", ())))
    return Range(inputs, outputs, None if weight is None else _largest(weight))


def _largest(nested: Any) -> float:
    if isinstance(nested, list):
        return max(map(_largest, nested), default=0.0)
    return float(nested)


def _named(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MENTIONED])
    more = len(names) - _MENTIONED
    return f"{shown} and {more} more" if more > 0 else shown
