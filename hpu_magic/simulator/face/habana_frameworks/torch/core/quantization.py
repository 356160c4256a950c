"""Prepare a process and a model for inference."""

from __future__ import annotations

import os
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._flags import is_lazy
from habana_frameworks.torch.core import _constants, fuse_conv_bn
from habana_frameworks.torch.core._constants import (  # noqa: F401  the vendor's names
    _check_params_as_const,
    _get_marked_const_count,
    _mark_params_as_const,
    _record_quant_param,
)

import torch
from torch import nn

_RED, _PLAIN = "\033[91m", "\033[0m"
_WEIGHT_SHARING = ("PT_HPU_WEIGHT_SHARING", "EXPERIMENTAL_WEIGHT_SHARING")


def check_env_flag(name: str, default: str = "") -> bool:
    """Return whether an environment variable is set to ON, 1, YES, TRUE or Y."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def hpu_set_inference_env(model: nn.Module | None = None) -> nn.Module | None:
    """Enable inference mode, and return `model` with fused batch normalizations.

    The result is a copy, or `model` itself if it has no batch normalizations. If `model` is in
    training mode, is on the device, or is not supported by ``torch.fx``, the function prints the
    reason and returns `model` unchanged.
    """
    if is_lazy() and all(check_env_flag(name, "1") for name in _WEIGHT_SHARING):
        print(
            f"{_RED}Weight sharing is on; for inference, set PT_HPU_WEIGHT_SHARING=0 before the "
            f"first import of habana_frameworks.torch.{_PLAIN}"
        )
    hpu.enable_inference_mode()
    hpu.enable_matmul3d_2d_reshape()
    return model if model is None else fuse_conv_bn.fuse(model)


def hpu_inference_initialize(
    model: nn.Module | None = None,
    mark_only_scales_as_const: bool = False,
    mark_scales: bool = True,
    mark_non_scales: bool = True,
    *,
    optimizer: Any = None,
    args: Any = None,
) -> None:
    """Enable inference mode, and mark the parameters of `model` as constants for the compiler.

    This does not change results. The file set by ``PT_INFERENCE_RANGE_FILE`` can contain value
    ranges of quantized tensors, with one ``path/name minimum maximum`` per line.

    Parameters
    ----------
    mark_scales, mark_non_scales : bool
        Whether to mark scales, and whether to mark all other parameters.
    mark_only_scales_as_const : bool
        Deprecated; same as ``mark_scales=True, mark_non_scales=False``.
    optimizer, args
        Arguments from older releases; ignored.
    """
    hpu.set_mark_scale_const(mark_scales or mark_only_scales_as_const)
    hpu.set_mark_non_scale_const(mark_non_scales and not mark_only_scales_as_const)
    if not hpu.is_inference_mode_enabled():
        hpu_set_inference_env()
    if model is None:
        return
    if is_lazy():
        _mark_params_as_const(model, only_scales=mark_only_scales_as_const or not mark_non_scales)
    _constants.record_ranges(os.environ.get("PT_INFERENCE_RANGE_FILE"))
    if _is_quantized(model):
        hpu.enable_quantization()


def hpu_teardown_inference_env() -> None:
    """Disable inference mode."""
    hpu.disable_inference_mode()
    hpu.disable_matmul3d_2d_reshape()


hpu_set_env = hpu_inference_set_env = hpu_set_inference_env
hpu_initialize = hpu_inference_initialize
hpu_reset_env = hpu_teardown_inference_env


def _is_quantized(model: nn.Module) -> bool:
    marked = model._buffers.get("HB_QUANTIZATION")
    if marked is None or isinstance(marked, torch.Tensor):
        return False
    return marked.get("quantization") is True
