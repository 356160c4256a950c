"""8-bit inference in Lightning: a model that is measured while a trainer runs it, or quantized."""

from __future__ import annotations

from typing import Any

import torch

from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import step
from hpu_magic.runtime.precision.fp8.measure import Measurement
from hpu_magic.runtime.precision.fp8.quantize import Quantization
from hpu_magic.runtime.precision.fp8.settings import Settings, settings


def begin_measuring(module: torch.nn.Module, **given: Any) -> Measurement:
    """Let the layers of a model observe what they meet, until the measurement is finished.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place: on the device, in the settings' high precision and in
        evaluation mode from now on.
    **given
        Settings by their JSON names; the others come from the file that ``QUANT_CONFIG`` names.

    Raises
    ------
    HPUError
        The process, the model or the settings do not fit.
    """
    wanted = settings("MEASURE", **given)
    step.check_process("MEASURE")
    measurement = Measurement(_for_inference(module, wanted), wanted)
    measurement.begin()
    return measurement


def quantize(module: torch.nn.Module, **given: Any) -> None:
    """Let a measured model compute in 8 bits.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place: on the device, in evaluation mode from now on.
    **given
        Settings by their JSON names; the others come from the file that ``QUANT_CONFIG`` names.

    Raises
    ------
    HPUError
        The process, the model, the settings or the measurements do not fit.
    """
    wanted = settings("QUANTIZE", **given)
    step.check_process("QUANTIZE")
    Quantization(_for_inference(module, wanted), wanted).run()


def _for_inference(module: torch.nn.Module, wanted: Settings) -> torch.nn.Module:
    step.selected(module, wanted)  # what does not fit is found before anything is changed
    device.take()
    return module.eval().to("hpu", device.dtype_named(wanted.high_precision))
