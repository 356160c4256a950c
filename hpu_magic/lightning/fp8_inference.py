"""8-bit inference in Lightning: measure a model while a trainer runs it, or quantize it."""

from __future__ import annotations

from typing import Any

import torch

from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import step
from hpu_magic.runtime.precision.fp8.measure import Measurement
from hpu_magic.runtime.precision.fp8.quantize import Quantization
from hpu_magic.runtime.precision.fp8.settings import Settings, settings


def begin_measuring(module: torch.nn.Module, **overrides: Any) -> Measurement:
    """Start to measure the values in the layers of a model.

    Parameters
    ----------
    module : torch.nn.Module
        Moved to the device in the settings' high precision, and set to evaluation mode.
    **overrides
        Settings by their JSON names; they override the file of ``QUANT_CONFIG``.

    Raises
    ------
    HPUError
        The process, model or settings are unsuitable.
    """
    chosen = settings("MEASURE", **overrides)
    step.check_process("MEASURE")
    measurement = Measurement(_for_inference(module, chosen), chosen)
    measurement.begin()
    return measurement


def quantize(module: torch.nn.Module, **overrides: Any) -> None:
    """Quantize a measured model to 8 bits.

    Parameters
    ----------
    module : torch.nn.Module
        Moved to the device, set to evaluation mode and quantized.
    **overrides
        Settings by their JSON names; they override the file of ``QUANT_CONFIG``.

    Raises
    ------
    HPUError
        The process, model, settings or measurements are unsuitable.
    """
    chosen = settings("QUANTIZE", **overrides)
    step.check_process("QUANTIZE")
    Quantization(_for_inference(module, chosen), chosen).run()


def _for_inference(module: torch.nn.Module, chosen: Settings) -> torch.nn.Module:
    step.selected(module, chosen)  # checks the settings before anything is changed
    device.take()
    return module.eval().to("hpu", device.dtype_named(chosen.high_precision))
