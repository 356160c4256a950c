"""FP8 inference in Lightning: measure a model while a Trainer runs it, or quantize a model.

The functions set the model to evaluation mode and move it to the device in the high precision that
the settings specify. Keyword arguments are settings with their JSON names; they override the
settings in the file ``QUANT_CONFIG``. The functions raise HPUError if the process, the model, the
settings or the measurements are not suitable.
"""

from __future__ import annotations

from typing import Any

import torch

from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8 import step
from hpu_magic.runtime.precision.fp8.measure import Measurement
from hpu_magic.runtime.precision.fp8.quantize import Quantization
from hpu_magic.runtime.precision.fp8.settings import Settings, settings


def begin_measuring(module: torch.nn.Module, **overrides: Any) -> Measurement:
    """Start measuring the values in the layers of a model."""
    chosen = settings("MEASURE", **overrides)
    step.check_process("MEASURE")
    measurement = Measurement(_for_inference(module, chosen), chosen)
    measurement.begin()
    return measurement


def quantize(module: torch.nn.Module, **overrides: Any) -> None:
    """Quantize a measured model to FP8."""
    chosen = settings("QUANTIZE", **overrides)
    step.check_process("QUANTIZE")
    Quantization(_for_inference(module, chosen), chosen).run()


def _for_inference(module: torch.nn.Module, chosen: Settings) -> torch.nn.Module:
    step.selected(module, chosen)  # checks the settings before the model is changed
    device.take()
    return module.eval().to("hpu", device.dtype_named(chosen.high_precision))
