"""Models that a precision plug-in converts for FP8 training or FP8 inference."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning import fp8, fp8_inference
from hpu_magic.runtime.precision.fp8.measure import Measurement, MeasureReport


class FP8Conversion:
    """The methods of precision plug-ins that convert models; they require ``precision="fp8"``."""

    precision: str
    recipe: Any
    replace_layers: bool

    def _set_conversion(self, recipe: Mapping[str, Any] | Any | None, replace_layers: bool) -> None:
        self.recipe = fp8.recipe_of(recipe) if self.precision == "fp8" else recipe
        self.replace_layers = replace_layers
        self.measured: MeasureReport | None = None
        self._infers = False
        self._measurement: Measurement | None = None

    def convert_modules(
        self,
        module: torch.nn.Module,
        inference: bool = False,
        replace_layers: bool | None = None,
        recipe: Mapping[str, Any] | Any | None = None,
        quant: bool = True,
        fp8_data_path: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> torch.nn.Module:
        """Prepare a model for FP8 training or FP8 inference.

        If a fit resumes from a checkpoint, convert the model before the fit. Inference needs two
        processes. The first process measures the model while a Trainer runs it, and then writes the
        measurements to files and to the attribute `measured`. The second process quantizes the
        model.

        Parameters
        ----------
        module : torch.nn.Module
            The model.
        inference : bool
            Whether to prepare for inference, which moves the model to the device in bf16 and sets
            it to evaluation mode.
        replace_layers, recipe : optional
            For training: override the plug-in's options.
        quant : bool
            For inference: whether to quantize the model with the measurements of an earlier process
            instead of measuring it.
        fp8_data_path : path, optional
            For inference: the folder that contains the measurements.
        **settings
            For inference: settings with their JSON names; they override the settings in the file
            ``QUANT_CONFIG``.

        Returns
        -------
        torch.nn.Module
            `module`, which is changed in place, or its replacement if it is a linear layer.

        Raises
        ------
        HPUError
            The precision is not ``"fp8"`` or, for inference, the process, the model, the settings
            or the measurements are not suitable.
        """
        if self.precision != "fp8":
            raise HPUError(
                "convert_modules requires precision='fp8', but this plug-in has "
                f"{self.precision!r}."
            )
        if inference:
            if fp8_data_path is not None:
                settings["dump_stats_path"] = os.path.join(fp8_data_path, "hqt")
            if quant:
                fp8_inference.quantize(module, **settings)
            elif self._measurement is not None:
                raise HPUError(
                    "This plug-in is already measuring a "
                    f"{type(self._measurement.model).__name__}: create another plug-in for a "
                    "different model."
                )
            else:
                self._measurement = fp8_inference.begin_measuring(module, **settings)
            self._infers = True
            return module
        if fp8_data_path is not None:
            settings["fp8_data_path"] = fp8_data_path
        if settings:
            raise HPUError(
                f"{', '.join(settings)} is a setting for inference: write inference=True, or "
                "remove it."
            )
        if recipe is not None:
            self.recipe = fp8.recipe_of(recipe)
        if replace_layers is not None:
            self.replace_layers = replace_layers
        return fp8.with_replaced_layers(module) if self.replace_layers else module

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert the model at the start of a fit, unless it has already been converted."""
        if self.replace_layers and not self._infers:
            module = self.convert_modules(module)
        return super().convert_module(module)  # type: ignore[misc,no-any-return]

    def teardown(self) -> None:
        """Write the measurements."""
        if self._measurement is not None:
            self.measured = self._measurement.finish()
