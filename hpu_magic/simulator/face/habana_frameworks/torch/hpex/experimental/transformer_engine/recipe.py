"""Recipes for FP8 training: the formats to use, and how to compute scales from measurements."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

_ALGORITHMS = ("most_recent", "max")


class Format(Enum):
    """The FP8 dtypes for the forward pass and for gradients."""

    E5M2 = (torch.float8_e5m2, torch.float8_e5m2)
    HYBRID = (torch.float8_e4m3fn, torch.float8_e5m2)
    E4M3 = (torch.float8_e4m3fn, torch.float8_e4m3fn)

    @property
    def forward(self) -> torch.dtype:
        """The dtype of inputs and weights."""
        return self.value[0]

    @property
    def backward(self) -> torch.dtype:
        """The dtype of gradients."""
        return self.value[1]


@dataclass
class DelayedScaling:
    """Recipe that computes scales from the largest magnitudes in earlier steps.

    A scale is ``largest value of the format / amax / 2**margin``. The scale stays unchanged if all
    values are zero, or if any value is infinite.

    Parameters
    ----------
    margin : int
        Headroom above the largest magnitude, in powers of two.
    interval : int
        Number of steps between two measurements. The second step of each interval measures, and the
        first step of the next interval computes scales. If the interval is 1, each step measures,
        and computes scales from the measurements of the previous step. After a forced measurement,
        the next step computes scales.
    fp8_format : Format
    amax_history_len : int
        Number of stored measurements.
    amax_compute_algo : str
        "most_recent" uses the latest measurement; "max" uses the maximum of all stored
        measurements.
    reduce_amax : bool
        Whether to use the maximum amax across the processes in a group.
    override_linear_precision : tuple of bool
        Which matmuls are not computed in FP8; only False is supported.

    Raises
    ------
    TypeError, ValueError
        A value is not supported.
    """

    margin: int = 0
    interval: int = 1
    fp8_format: Format = Format.HYBRID
    amax_history_len: int = 1
    amax_compute_algo: str = "most_recent"
    reduce_amax: bool = True
    override_linear_precision: tuple[bool, bool, bool] = (False, False, False)

    def __post_init__(self) -> None:
        _require_integer("margin", self.margin, None)
        _require_integer("interval", self.interval, 1)
        _require_integer("amax_history_len", self.amax_history_len, 1)
        if not isinstance(self.fp8_format, Format):
            raise TypeError(
                f"fp8_format={self.fp8_format!r} is not a Format; use recipe.Format.HYBRID, "
                "recipe.Format.E5M2 or recipe.Format.E4M3."
            )
        if self.amax_compute_algo not in _ALGORITHMS:
            raise ValueError(
                f"amax_compute_algo={self.amax_compute_algo!r} is not supported; use 'most_recent' "
                "or 'max'."
            )
        if any(self.override_linear_precision):
            raise ValueError(
                f"override_linear_precision={self.override_linear_precision!r} is not supported "
                "because all three matmuls of a linear layer run in FP8; omit this argument."
            )


def _require_integer(name: str, value: object, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r} is not an integer.")
    if least is not None and value < least:
        raise ValueError(f"{name}={value!r} is too small; use at least {least}.")
