"""The precision plug-in: fp32, autocast of the card to a type of 16 bits, or 8 bits besides.

8 bits are for training, by the vendor's Transformer Engine, or for inference, by Neural Compressor.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning import fp8, fp8_inference, hmp
from hpu_magic.lightning.scaling import ScaledLosses
from hpu_magic.runtime.device import device as card
from hpu_magic.runtime.precision.fp8.measure import Measurement, MeasureReport

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
"""What ``precision=...`` takes in ``Trainer`` and ``Fabric``; the plug-in takes "fp8" as well."""
PRECISION_INPUT = Literal["32", "32-true", "bf16", "bf16-mixed", "16", "16-mixed", "fp8"]
"""The values of `precision` that the plug-in takes."""
_SHORT = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


class HPUPrecisionPluginBase(ScaledLosses):
    """How a model computes on the card.

    Parameters
    ----------
    precision
        ``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"`` with scaled losses, or ``"fp8"``: as
        ``"bf16-mixed"``, with layers of the vendor's Transformer Engine in 8 bits.
    device
        Device type given to ``torch.autocast``.
    recipe
        With ``"fp8"``: how scales follow what is measured, a ``DelayedScaling`` or a dictionary of
        its arguments.
    replace_layers
        With ``"fp8"``: put layers of the Transformer Engine in the place of linear ones. It
        happens in `convert_modules`, and where a fit begins.
    opt_level, verbose, bf16_file_path, fp32_file_path
        Options of HMP, which came before autocast: with one of them, functions of PyTorch cast
        their tensors to bfloat16 or float32 by lists of operators, for the rest of the process, and
        `precision` is ``16`` or ``"bf16-mixed"``.

    Raises
    ------
    HPUError
        For any other precision, for ``"fp8"`` and ``"16-mixed"`` on a card of the first
        generation, for ``"fp8"`` without the Transformer Engine, and for options of another
        precision.
    """

    _mixed_precision_class: type[Any]

    def __init__(
        self,
        precision: str = "32-true",
        device: str = "hpu",
        recipe: Mapping[str, Any] | Any | None = None,
        replace_layers: bool = False,
        opt_level: str | None = None,
        verbose: bool = False,
        bf16_file_path: str | os.PathLike[str] | None = None,
        fp32_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        by_hmp = bool(opt_level or verbose or bf16_file_path or fp32_file_path)
        precision = _checked(precision, by_hmp, options=recipe is not None or replace_layers)
        if by_hmp:
            hmp.convert(opt_level, verbose, bf16_file_path, fp32_file_path)
        if precision == "fp8":
            recipe = fp8.recipe_of(recipe)
        super().__init__()
        self.precision = precision
        self.device = device
        self.recipe = recipe
        self.replace_layers = replace_layers
        self.measured: MeasureReport | None = None
        self._by_hmp = by_hmp
        self._infers = False
        self._measurement: Measurement | None = None
        # Lightning's own; with "16-mixed" it scales losses and gradients.
        self._mixed: Any = None
        if self._casts():
            sixteen_bits = "16-mixed" if precision == "16-mixed" else "bf16-mixed"
            self._mixed = self._mixed_precision_class(sixteen_bits, device)

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
        replace_layers : bool, optional
            For training: as in the plug-in's own options, whose value it replaces.
        recipe : DelayedScaling or mapping, optional
            For training: as in the plug-in's own options, whose value it replaces.
        quant : bool
            For inference: quantize, by the measurements of a process before, or measure.
        fp8_data_path : path, optional
            For inference: the folder of what is measured.
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
        HPUError
            The precision is not ``"fp8"``; or, for inference, the process, the model, the
            settings or the measurements do not fit.
        """
        if self.precision != "fp8":
            raise HPUError(
                f"convert_modules is for precision='fp8', and this plug-in has {self.precision!r}."
            )
        if inference:
            if fp8_data_path is not None:
                settings["dump_stats_path"] = os.path.join(fp8_data_path, "hqt")
            if quant:
                fp8_inference.quantize(module, **settings)
            elif self._measurement is not None:
                raise HPUError(
                    f"This plug-in measures a {type(self._measurement.model).__name__}, and a "
                    "plug-in measures one model: make another plug-in for the next."
                )
            else:
                self._measurement = fp8_inference.begin_measuring(module, **settings)
            self._infers = True
            return module
        if fp8_data_path is not None:
            settings["fp8_data_path"] = fp8_data_path
        if settings:
            raise HPUError(
                f"{', '.join(settings)} is a setting of inference: write inference=True, or leave "
                "it out."
            )
        if recipe is not None:
            self.recipe = fp8.recipe_of(recipe)
        if replace_layers is not None:
            self.replace_layers = replace_layers
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
        dtype = torch.float16 if self.precision == "16-mixed" else torch.bfloat16
        return torch.autocast(self.device, dtype=dtype, enabled=self._casts())

    def _casts(self) -> bool:
        return self.precision != "32-true" and not self._by_hmp

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Run a step of the model under this precision."""
        if not self._casts():
            yield
            return
        with self.autocast_context_manager():
            if self.precision == "fp8" and not self._infers:
                with fp8.autocast(self.recipe):
                    yield
            else:
                yield


def _checked(precision: str, by_hmp: bool, options: bool) -> str:
    """Return the precision by its long name.

    Parameters
    ----------
    precision : str
        As it was given.
    by_hmp : bool
        There are options of HMP.
    options : bool
        There are options of ``"fp8"``.

    Raises
    ------
    HPUError
        There is no such precision, here or on this card, or it has not these options.
    """
    known = (*SUPPORTED_PRECISIONS, "fp8")
    precision = _SHORT.get(str(precision), precision)
    if precision not in known:
        raise HPUError(
            f"precision={precision!r} is not supported on hpu: "
            f"write {' or '.join(map(repr, known))}."
        )
    if by_hmp:
        if precision not in ("16-mixed", "bf16-mixed"):
            raise HPUError(
                "opt_level, verbose, bf16_file_path and fp32_file_path are options of "
                f"precision='bf16-mixed', not of {precision!r}: leave them out."
            )
        precision = "bf16-mixed"
    if precision == "16-mixed" and card.generation() == "GAUDI":
        raise HPUError(
            "precision='16-mixed' needs a Gaudi2 or a later card, and this machine has GAUDI: "
            "write precision='bf16-mixed'."
        )
    if precision == "fp8":
        fp8.require_fp8()
    elif options:
        raise HPUError(
            f"recipe and replace_layers are options of precision='fp8', not of {precision!r}: "
            "leave them out."
        )
    return precision


class FabricPrecisionBase(HPUPrecisionPluginBase):
    """How a model computes on the card; its inputs and outputs are converted as by Fabric's own.

    Takes the options of the plug-in for ``Trainer``.
    """

    def convert_input(self, data: Any) -> Any:
        """Return a model's floating-point inputs in the type of 16 bits."""
        return data if self._mixed is None else self._mixed.convert_input(data)

    def convert_output(self, data: Any) -> Any:
        """Return a model's floating-point outputs in the default type."""
        return data if self._mixed is None else self._mixed.convert_output(data)
