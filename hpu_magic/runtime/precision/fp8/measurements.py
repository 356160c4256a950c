"""The files of a measurement: what they were taken of, and whether they fit a model."""

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

from hpu_magic.errors import RefusedError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8.settings import CHOICES, Settings
from hpu_magic.runtime.precision.fp8.step import Layer

_MENTIONED = 4
# A maximum is kept in bf16.
_TOLERANCE = 2.0**-7


@dataclass(frozen=True)
class Range:
    """The largest magnitudes that a layer has met.

    Attributes
    ----------
    inputs, outputs : tuple of float
        Of each input, and of each output that was measured.
    weight : float or None
        Of the layer's weight.
    """

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    weight: float | None

    @property
    def is_finite(self) -> bool:
        """Whether all of them are numbers."""
        weight = () if self.weight is None else (self.weight,)
        return all(map(math.isfinite, (*self.inputs, *self.outputs, *weight)))


class Measurements:
    """Measurement files, by what their names begin with.

    Parameters
    ----------
    settings : Settings
        Say where the files are, and of which observer.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.file = Path(f"{settings.stats}_hooks_{settings.observer}.json")
        self.arrays = self.file.with_suffix(".npz")  # what Neural Compressor itself reads
        self.origin = Path(f"{settings.stats}_origin.json")

    def read(self) -> dict[str, Range]:
        """Return the ranges by layer.

        Raises
        ------
        RefusedError
            There are none, or they are no measurements.
        """
        if not (self.file.is_file() and self.arrays.is_file()):
            raise RefusedError(self._nothing_there())
        try:
            nodes = json.loads(self.file.read_text(encoding="utf-8"))["Nodes"]
            ranges = {name: _range(node) for name, node in nodes.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RefusedError(
                f"{self.file} holds no measurements ({error}): measure the model again."
            ) from None
        if not zipfile.is_zipfile(self.arrays):  # as where writing it was interrupted
            raise RefusedError(f"{self.arrays} holds no measurements: measure the model again.")
        return ranges

    def check_folder(self) -> None:
        """Refuse a place that cannot be written to, which would show when all is measured.

        Raises
        ------
        RefusedError
            The folder cannot be made, or is read-only.
        """
        folder = self.file.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except (OSError, ValueError) as error:
            raise RefusedError(
                f"Measurements cannot be kept at {self.settings.stats!r} ({error}): give another "
                "path (dump_stats_path)."
            ) from None

    def write_origin(self, model: Any, layers: Iterable[Layer]) -> None:
        """Keep beside the files on which card and of which layers they were taken."""
        kept = {
            "generation": device.generation(),
            "model": type(model).__name__,
            "layers": dict(layers),
        }
        self.origin.write_text(json.dumps(kept, indent=4) + "\n", encoding="utf-8")

    def check(self, model: Any, layers: Iterable[Layer]) -> None:
        """Refuse measurements that are not of this model on this generation.

        Raises
        ------
        RefusedError
            No measurements, or those of another generation, model or state of the model.
        """
        ranges, (generation, kinds), layers = self.read(), self._read_origin(), list(layers)
        self._check_generation(generation)
        modules = {name: type(module).__name__ for name, module in model.named_modules()}
        lacking = [name for name in ranges if name not in modules]
        other = [name for name in ranges if kinds.get(name, modules.get(name)) != modules.get(name)]
        if lacking or other:
            named = _named(lacking or other)
            what = f"has no {named}" if lacking else f"has another kind of layer at {named}"
            raise RefusedError(
                f"The measurements {self.file} are of another model: this {type(model).__name__} "
                f"{what}. Measure it, or give the path of its own measurements."
            )
        missing = [name for name, _ in layers if name not in ranges]
        if missing and not self.settings.takes_what_was_not_measured:
            raise RefusedError(
                f"{_named(missing)} has no measurement in {self.file}: measure again with data "
                "that reaches it, put it in the blocklist, or set ignore_modules_wo_measures."
            )
        self._check_weights(model, {name: ranges[name] for name, _ in layers if name in ranges})

    def _check_generation(self, measured: str | None) -> None:
        here = device.generation()
        wanted = {here, self.settings.values.get("device_for_scales")}
        if measured is not None and here is not None and measured not in wanted:
            raise RefusedError(
                f"The measurements {self.file} were taken on {measured}, and this card is {here}: "
                "measure here."
            )

    def _check_weights(self, model: Any, ranges: dict[str, Range]) -> None:
        for name, found in ranges.items():
            weight = getattr(model.get_submodule(name), "weight", None)
            if weight is None or found.weight is None:
                continue
            largest = float(weight.detach().abs().max())
            if abs(largest - found.weight) > _TOLERANCE * max(largest, found.weight):
                raise RefusedError(
                    f"The measurements {self.file} are of other weights: those of {name!r} reach "
                    f"{largest:.4g} here and {found.weight:.4g} there. Measure this model."
                )

    def _read_origin(self) -> tuple[str | None, dict[str, str]]:
        """Return generation and layers, nothing where others took the measurements."""
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
            one
            for one in CHOICES["observer"]
            if (folder / f"{start}{one}.npz").is_file() and one != self.settings.observer
        ]
        if others:
            return (
                f"There are no measurements of the observer {self.settings.observer!r} at "
                f"{self.settings.stats!r}, only of {', '.join(others)}: ask for that observer, or "
                "measure again."
            )
        return (
            f"There are no measurements at {self.settings.stats!r}: type %hpu_fp8 measure MODEL "
            "SAMPLE in a process of its own first, or say where others are (dump_stats_path)."
        )


def _range(node: dict[str, Any]) -> Range:
    weight = node.get("params", {}).get("weight")
    inputs = tuple(_largest(one) for one in node.get("inputs", ()))
    outputs = tuple(_largest(one) for one in node.get("outputs", ()))
    return Range(inputs, outputs, None if weight is None else _largest(weight))


def _largest(nested: Any) -> float:
    if isinstance(nested, list):
        return max((_largest(one) for one in nested), default=0.0)
    return float(nested)


def _named(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MENTIONED])
    more = len(names) - _MENTIONED
    return f"{shown} and {more} more" if more > 0 else shown
