"""Switches of the vendor's graph compiler. They are kept and read back, and change no result."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_STREAM_ASYNC = "PT_ENABLE_HABANA_STREAMASYNC"


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() in ("1", "true")


_dynamic_shape = _is_set("PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES")
_inference_mode = _is_set("PT_HPU_INFERENCE_MODE")
_matmul3d_2d_reshape = _is_set("PT_HPU_MATMUL3D_2D_RESHAPE")
_recompute_sdp = True


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Write `debug_mode` to the environment, as ``PT_ENABLE_HABANA_STREAMASYNC``."""
    os.environ[_STREAM_ASYNC] = str(debug_mode)


def get_sync_debug_mode() -> str:
    """Return ``PT_ENABLE_HABANA_STREAMASYNC`` of the environment.

    Raises
    ------
    KeyError
        The variable was never set.
    """
    return os.environ[_STREAM_ASYNC]


def enable_dynamic_shape() -> None:
    """Accept graphs that serve a range of shapes; simulated ones serve the shapes they have."""
    global _dynamic_shape
    _dynamic_shape = True


def disable_dynamic_shape() -> None:
    """Take back `enable_dynamic_shape`."""
    global _dynamic_shape
    _dynamic_shape = False


def get_dynamic_shape_status() -> bool:
    """Tell whether dynamic shapes are on; ``PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES`` at first."""
    return _dynamic_shape


def enable_optim_output_sif() -> None:
    """Accept the vendor's faster handling of outputs whose size depends on data."""


def disable_optim_output_sif() -> None:
    """Take back `enable_optim_output_sif`."""


def enable_inference_mode() -> None:
    """Announce that this process computes no gradients."""
    global _inference_mode
    _inference_mode = True


def disable_inference_mode() -> None:
    """Take back `enable_inference_mode`."""
    global _inference_mode
    _inference_mode = False


def is_inference_mode_enabled() -> bool:
    """Tell whether inference mode is on; ``PT_HPU_INFERENCE_MODE`` decides at first."""
    return _inference_mode


def enable_quantization() -> None:
    """Accept the vendor's graph changes for quantized models."""


def disable_quantization() -> None:
    """Take back `enable_quantization`."""


def enable_matmul3d_2d_reshape() -> None:
    """Accept that products of three-dimensional tensors are computed as matrices."""
    global _matmul3d_2d_reshape
    _matmul3d_2d_reshape = True


def disable_matmul3d_2d_reshape() -> None:
    """Take back `enable_matmul3d_2d_reshape`."""
    global _matmul3d_2d_reshape
    _matmul3d_2d_reshape = False


def is_matmul3d_2d_reshape_enabled() -> bool:
    """Tell whether the reshape is on; ``PT_HPU_MATMUL3D_2D_RESHAPE`` decides at first."""
    return _matmul3d_2d_reshape


def enable_const_section_serialization(path: str, clear_path: bool, use_compression: bool) -> None:
    """Accept a place for the constants of recipes; simulated recipes have none to write."""


def disable_const_section_serialization() -> None:
    """Take back `enable_const_section_serialization`."""


def set_mark_scale_const(value: bool) -> None:
    """Accept whether the scales of a quantized model are constants of its graph."""


def set_mark_non_scale_const(value: bool) -> None:
    """Accept whether the other parameters of a model are constants of its graph."""


def enable_recompute_sdp(value: bool) -> None:
    """Choose whether fused attention computes its weights again in backward; on at first."""
    global _recompute_sdp
    _recompute_sdp = bool(value)


def recompute_sdp_enabled() -> bool:
    """Tell whether fused attention computes its weights again in backward."""
    return _recompute_sdp


@contextlib.contextmanager
def sdp_kernel(enable_recompute: bool = True) -> Iterator[None]:
    """Have `recompute_sdp_enabled` tell `enable_recompute` inside the block."""
    before = recompute_sdp_enabled()
    enable_recompute_sdp(enable_recompute)
    try:
        yield
    finally:
        enable_recompute_sdp(before)
