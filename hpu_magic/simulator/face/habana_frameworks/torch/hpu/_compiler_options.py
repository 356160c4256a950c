"""Options of the vendor's graph compiler, which are stored but change no result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from habana_frameworks.torch import _flags

_STREAM_ASYNC = "PT_ENABLE_HABANA_STREAMASYNC"

_dynamic_shape = _flags.is_on("PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES")
_inference_mode = _flags.is_on("PT_HPU_INFERENCE_MODE")
_matmul3d_2d_reshape = _flags.is_on("PT_HPU_MATMUL3D_2D_RESHAPE")
_recompute_sdp = True


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Set the environment variable ``PT_ENABLE_HABANA_STREAMASYNC``."""
    os.environ[_STREAM_ASYNC] = str(debug_mode)


def get_sync_debug_mode() -> str:
    """Return the environment variable ``PT_ENABLE_HABANA_STREAMASYNC``.

    Raises
    ------
    KeyError
        The variable is not set.
    """
    return os.environ[_STREAM_ASYNC]


def enable_dynamic_shape() -> None:
    """Allow graphs for a range of shapes; simulated graphs have fixed shapes."""
    global _dynamic_shape
    _dynamic_shape = True


def disable_dynamic_shape() -> None:
    """Undo `enable_dynamic_shape`."""
    global _dynamic_shape
    _dynamic_shape = False


def get_dynamic_shape_status() -> bool:
    """Return whether dynamic shapes are on; default: ``PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES``."""
    return _dynamic_shape


def enable_optim_output_sif() -> None:
    """Allow the vendor's optimization of outputs whose size depends on data."""


def disable_optim_output_sif() -> None:
    """Undo `enable_optim_output_sif`."""


def enable_inference_mode() -> None:
    """Declare that this process computes no gradients."""
    global _inference_mode
    _inference_mode = True


def disable_inference_mode() -> None:
    """Undo `enable_inference_mode`."""
    global _inference_mode
    _inference_mode = False


def is_inference_mode_enabled() -> bool:
    """Return whether inference mode is on; default: ``PT_HPU_INFERENCE_MODE``."""
    return _inference_mode


def enable_quantization() -> None:
    """Allow the vendor's graph passes for quantized models."""


def disable_quantization() -> None:
    """Undo `enable_quantization`."""


def enable_matmul3d_2d_reshape() -> None:
    """Allow products of 3D tensors to be computed as products of matrices."""
    global _matmul3d_2d_reshape
    _matmul3d_2d_reshape = True


def disable_matmul3d_2d_reshape() -> None:
    """Undo `enable_matmul3d_2d_reshape`."""
    global _matmul3d_2d_reshape
    _matmul3d_2d_reshape = False


def is_matmul3d_2d_reshape_enabled() -> bool:
    """Return whether the reshape is on; default: ``PT_HPU_MATMUL3D_2D_RESHAPE``."""
    return _matmul3d_2d_reshape


def enable_const_section_serialization(path: str, clear_path: bool, use_compression: bool) -> None:
    """Accept a folder for the constants of recipes; simulated recipes have no constants."""


def disable_const_section_serialization() -> None:
    """Undo `enable_const_section_serialization`."""


def set_mark_scale_const(value: bool) -> None:
    """Set whether the scales of a quantized model are constants of its graph."""


def set_mark_non_scale_const(value: bool) -> None:
    """Set whether the other parameters of a model are constants of its graph."""


def enable_recompute_sdp(value: bool) -> None:
    """Set whether fused attention recomputes its probabilities in the backward; default: on."""
    global _recompute_sdp
    _recompute_sdp = bool(value)


def recompute_sdp_enabled() -> bool:
    """Return whether fused attention recomputes its probabilities in the backward."""
    return _recompute_sdp


@contextlib.contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Call `enable_recompute_sdp` for the ``with`` block."""
    before = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(before)
