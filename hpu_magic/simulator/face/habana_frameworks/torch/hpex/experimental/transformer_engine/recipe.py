"""How the scales of 8-bit training follow what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

_ALGORITHMS = ("most_recent", "max")


class Format(Enum):
    """Which 8-bit types the forward pass and the gradients take."""

    E5M2 = (torch.float8_e5m2, torch.float8_e5m2)
    HYBRID = (torch.float8_e4m3fn, torch.float8_e5m2)
    E4M3 = (torch.float8_e4m3fn, torch.float8_e4m3fn)

    @property
    def forward(self) -> torch.dtype:
        """The type of inputs and weights."""
        return self.value[0]

    @property
    def backward(self) -> torch.dtype:
        """The type of gradients."""
        return self.value[1]


@dataclass
class DelayedScaling:
    """Scales from the largest magnitudes of earlier steps.

    A scale is ``largest value of the format / amax / 2**margin``. It stays the same if all values
    were zero, or some were infinite.

    Parameters
    ----------
    margin : int
        Powers of two that are left free above the largest magnitude.
    interval : int
        Steps from one measurement to the next: the second of each `interval` steps is measured, and
        the first of the next ones computes scales from it. If it is 1, each step is measured, and
        computes scales from the step before it. If measurement is forced, the step after a measured
        one computes them.
    fp8_format : Format
    amax_history_len : int
        How many measurements are remembered.
    amax_compute_algo : str
        "most_recent", or "max" for the largest that is remembered.
    reduce_amax : bool
        Whether the processes of a group agree on the largest magnitude.
    override_linear_precision : tuple of bool
        Which products are not in 8 bits: none, so that only False is taken.

    Raises
    ------
    TypeError, ValueError
        For values that it does not take.
    """

    margin: int = 0
    interval: int = 1
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1
    amax_compute_algo: str = "most_recent"
    reduce_amax: bool = True
    override_linear_precision: tuple[bool, bool, bool] = (False, False, False)

    def __post_init__(self) -> None:
        _require_whole("margin", self.margin, None)
        _require_whole("interval", self.interval, 1)
        _require_whole("amax_history_len", self.amax_history_len, 1)
        if not isinstance(self.fp8_format, Format):
            raise TypeError(
                f"fp8_format={self.fp8_format!r} is no Format: write recipe.Format.HYBRID, "
                "recipe.Format.E5M2 or recipe.Format.E4M3."
            )
        if self.amax_compute_algo not in _ALGORITHMS:
            raise ValueError(
                f"amax_compute_algo={self.amax_compute_algo!r} is unknown: write "
                "'most_recent' or 'max'."
            )
        if any(self.override_linear_precision):
            raise ValueError(
                f"override_linear_precision={self.override_linear_precision!r} cannot be had: all "
                "three products of a linear layer are in 8 bits, so leave it out."
            )


def _require_whole(name: str, value: object, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} is no whole number.")
    if least is not None and value < least:
        raise ValueError(f"{name}={value!r} is too small: write {least} or more.")
