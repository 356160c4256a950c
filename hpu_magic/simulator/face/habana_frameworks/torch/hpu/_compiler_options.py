"""Options of the vendor's graph compiler, which are stored but do not affect results."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from habana_frameworks.torch import _flags

_STREAM_ASYNC = "PT_ENABLE_HABANA_STREAMASYNC"


class _Option:
    """A boolean option whose initial value is read from an environment variable."""

    def __init__(self, variable: str = "") -> None:
        self._on = bool(variable) and _flags.is_on(variable)

    def enable(self) -> None:
        self._on = True

    def disable(self) -> None:
        self._on = False

    def is_on(self) -> bool:
        return self._on


_dynamic_shape = _Option("PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES")
enable_dynamic_shape, disable_dynamic_shape = _dynamic_shape.enable, _dynamic_shape.disable
get_dynamic_shape_status = _dynamic_shape.is_on

# For outputs whose sizes depend on the data.
_optim_output_sif = _Option()
enable_optim_output_sif = _optim_output_sif.enable
disable_optim_output_sif = _optim_output_sif.disable

# Declares that the process does not compute gradients.
_inference_mode = _Option("PT_HPU_INFERENCE_MODE")
enable_inference_mode, disable_inference_mode = _inference_mode.enable, _inference_mode.disable
is_inference_mode_enabled = _inference_mode.is_on

_quantization = _Option()
enable_quantization, disable_quantization = _quantization.enable, _quantization.disable

# Computes matmuls of 3D tensors as matmuls of 2D tensors.
_matmul3d_2d_reshape = _Option("PT_HPU_MATMUL3D_2D_RESHAPE")
enable_matmul3d_2d_reshape = _matmul3d_2d_reshape.enable
disable_matmul3d_2d_reshape = _matmul3d_2d_reshape.disable
is_matmul3d_2d_reshape_enabled = _matmul3d_2d_reshape.is_on

_recompute_sdp = True


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Set the environment variable ``PT_ENABLE_HABANA_STREAMASYNC``."""
    os.environ[_STREAM_ASYNC] = str(debug_mode)


def get_sync_debug_mode() -> str:
    """Return the environment variable ``PT_ENABLE_HABANA_STREAMASYNC``, or raise KeyError."""
    return os.environ[_STREAM_ASYNC]


def enable_const_section_serialization(path: str, clear_path: bool, use_compression: bool) -> None:
    """Do nothing, because simulated recipes have no constants to store in a folder."""


def disable_const_section_serialization() -> None:
    """Undo `enable_const_section_serialization`."""


def set_mark_scale_const(value: bool) -> None:
    """Set whether the scales of a quantized model are constants in its graph."""


def set_mark_non_scale_const(value: bool) -> None:
    """Set whether parameters that are not scales are constants in the model's graph."""


def enable_recompute_sdp(value: bool) -> None:
    """Set whether fused attention recomputes probabilities in backward (on by default)."""
    global _recompute_sdp
    _recompute_sdp = bool(value)


def recompute_sdp_enabled() -> bool:
    """Return whether fused attention recomputes probabilities in backward."""
    return _recompute_sdp


@contextlib.contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Call `enable_recompute_sdp`, and restore the previous value after the ``with`` block."""
    before = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(before)
