"""The precision plug-in: fp32, autocast of the card to bfloat16, or 8 bits on top of that.

8 bits are for training, by the vendor's Transformer Engine, or for inference, by Neural Compressor.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from hpu_magic.errors import RefusedError
from hpu_magic.lightning import fp8, fp8_inference
from hpu_magic.runtime.precision.fp8.measure import Measurement, MeasureReport

__all__ = ["SUPPORTED_PRECISIONS", "HPUPrecisionPluginBase"]

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed")
"""What ``Trainer(precision=...)`` takes; the plug-in takes "fp8" as well."""


class HPUPrecisionPluginBase:
    """What ``HPUPrecisionPlugin`` does, apart from the Lightning class it derives from.

    Parameters
    ----------
    precision
        ``"32-true"``, ``"bf16-mixed"``, or ``"fp8"``: as ``"bf16-mixed"``, with layers of the
        vendor's Transformer Engine in 8 bits.
    device
        Device type given to ``torch.autocast``.
    recipe
        With ``"fp8"``: how scales follow what is measured, a ``DelayedScaling`` or a dictionary of
        its arguments.
    replace_layers
        With ``"fp8"``: put layers of the Transformer Engine in the place of linear ones. It
        happens in `convert_modules`, and where a fit begins.

    Raises
    ------
    RefusedError
        For any other precision, for ``"fp8"`` on a card of the first generation or without the
        Transformer Engine, and for options of another precision.
    """

    def __init__(
        self,
        precision: str = "32-true",
        device: str = "hpu",
        recipe: Mapping[str, Any] | Any | None = None,
        replace_layers: bool = False,
    ) -> None:
        known = (*SUPPORTED_PRECISIONS, "fp8")
        if precision not in known:
            raise RefusedError(
                f"precision={precision!r} is not supported on hpu: "
                f"write {' or '.join(map(repr, known))}."
            )
        if precision == "fp8":
            fp8.require_fp8()
            recipe = fp8.recipe_of(recipe)
        elif recipe is not None or replace_layers:
            raise RefusedError(
                f"recipe and replace_layers are options of precision='fp8', not of {precision!r}: "
                "leave them out."
            )
        super().__init__()
        self.precision = precision
        self.device = device
        self.recipe = recipe
        self.replace_layers = replace_layers
        self.measured: MeasureReport | None = None
        self._infers = False
        self._measurement: Measurement | None = None

    def convert_modules(
        self, module: torch.nn.Module, inference: bool = False, quant: bool = True, **settings: Any
    ) -> torch.nn.Module:
        """Make a model ready for training in 8 bits, or for inference.

        A model that resumes from a checkpoint is converted before the fit. Inference takes two
        processes: the first measures the model while a trainer runs it, and the measurements are
        written where that ends, then also in the attribute `measured`; the second quantizes it.

        Parameters
        ----------
        module : torch.nn.Module
            The model.
        inference : bool
            For inference: the model is moved to the device in bf16 and evaluation mode.
        quant : bool
            For inference: quantize, by the measurements of a process before, or measure.
        **settings
            For inference: settings by their JSON names; the others come from the file that
            ``QUANT_CONFIG`` names.

        Returns
        -------
        torch.nn.Module
            `module`, changed in place; where it is a linear layer itself that is to be trained,
            its replacement.

        Raises
        ------
        RefusedError
            The precision is not ``"fp8"``; or, for inference, the process, the model, the
            settings or the measurements do not fit.
        """
        if self.precision != "fp8":
            raise RefusedError(
                f"convert_modules is for precision='fp8', and this plug-in has {self.precision!r}."
            )
        if inference:
            if quant:
                fp8_inference.quantize(module, **settings)
            elif self._measurement is not None:
                raise RefusedError(
                    f"This plug-in measures a {type(self._measurement.model).__name__}, and a "
                    "plug-in measures one model: make another plug-in for the next."
                )
            else:
                self._measurement = fp8_inference.begin_measuring(module, **settings)
            self._infers = True
            return module
        if settings:
            raise RefusedError(
                f"{', '.join(settings)} is a setting of inference: write inference=True, or leave "
                "it out."
            )
        return fp8.with_replaced_layers(module) if self.replace_layers else module

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert the model where a fit begins, unless it is converted already."""
        return self.convert_modules(module) if self.replace_layers and not self._infers else module

    def teardown(self) -> None:
        """Write what was measured."""
        if self._measurement is not None:
            self.measured = self._measurement.finish()

    def autocast_context_manager(self) -> torch.autocast:
        """Return the autocast that each step of the model runs under."""
        return torch.autocast(
            self.device, dtype=torch.bfloat16, enabled=self.precision != "32-true"
        )

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Run a step of the model under this precision."""
        if self.precision == "32-true":
            yield
            return
        with self.autocast_context_manager():
            if self.precision == "fp8" and not self._infers:
                with fp8.autocast(self.recipe):
                    yield
            else:
                yield
