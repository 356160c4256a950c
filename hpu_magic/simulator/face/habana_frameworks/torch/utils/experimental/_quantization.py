"""What Neural Compressor tells the vendor's graph compiler about a quantized model."""

from __future__ import annotations

_told: dict[str, object] = {}


def _set_is_dynamic_quantization(is_dynamic: bool) -> None:
    """Accept whether scales are calculated while the model runs.

    Operators take scales of both kinds, so that no result depends on it.
    """
    _told["is_dynamic"] = bool(is_dynamic)


def _set_scale_attributes(hw_aligned: bool, scale_method: int) -> None:
    """Accept what is known of scales that may change between runs.

    Parameters
    ----------
    hw_aligned : bool
        Whether they are among those that the hardware has for free.
    scale_method : int
        Number of Neural Compressor's method.
    """
    _told["scale_attributes"] = (bool(hw_aligned), int(scale_method))
