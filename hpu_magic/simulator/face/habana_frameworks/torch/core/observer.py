"""Observers that track the largest absolute value and compute scales that are free on Gaudi2."""

from __future__ import annotations

import math
from typing import Any

from habana_frameworks.torch.core import _pt2e

import torch

_FLOAT8 = (torch.float8_e5m2, torch.float8_e4m3fn)
_module = _pt2e.find("observer")
_ObserverBase: Any = _module.ObserverBase if _module else torch.nn.Module


class _AbsMax(_ObserverBase):
    """Base class with the options of both observers and the scale calculation."""

    def __init__(
        self,
        dtype: torch.dtype = torch.float8_e4m3fn,
        qscheme: torch.qscheme = torch.per_tensor_symmetric,
        reduce_range: bool = False,
        quant_min: float | None = None,
        quant_max: float | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = torch.finfo(torch.float32).eps,
        backoff_margin: int = 0,
        is_dynamic: bool = False,
    ) -> None:
        name = type(self).__name__
        if dtype not in _FLOAT8:
            raise NotImplementedError(
                f"{name}: dtype only supports torch.float8_e5m2 and torch.float8_e4m3fn."
            )
        if qscheme != torch.per_tensor_symmetric:
            raise NotImplementedError(f"{name}: qscheme only supports torch.per_tensor_symmetric.")
        for option, value in (("reduce_range", reduce_range), ("is_dynamic", is_dynamic)):
            if value:
                raise NotImplementedError(f"{name}: {option} only supports False.")
        super().__init__(**({"dtype": dtype} if _module else {}))
        finfo = torch.finfo(dtype)
        self.dtype, self.qscheme, self.reduce_range = dtype, qscheme, reduce_range
        self.quant_min = finfo.min if quant_min is None else quant_min
        self.quant_max = finfo.max if quant_max is None else quant_max
        if self.quant_min != -self.quant_max:
            raise NotImplementedError(
                f"{name}: quant_min is {self.quant_min} and quant_max is {self.quant_max}; use a "
                "quant_min of -quant_max."
            )
        self.eps, self.backoff_margin, self.is_dynamic = eps, backoff_margin, is_dynamic
        self._factory = dict(factory_kwargs or {})
        self._reset()

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scale and the zero point (int64 zeros) for the observed values.

        The scale is the largest absolute value, divided by half the quantized range and multiplied
        by ``2**backoff_margin``, but at least `eps`. On all cards, the scale is rounded up to one
        of the scales that Gaudi2 applies at no cost: 2^-8, 2^-4, 1 or 2^4. For float8_e5m2, the
        scale is always 1.
        """
        largest = self._largest()
        scale = largest / ((self.quant_max - self.quant_min) / 2) * 2.0**self.backoff_margin
        scale = torch.clamp(scale, min=self.eps)
        return _aligned(scale, self.dtype), torch.zeros_like(scale, dtype=torch.int64)

    def reset_observer_state(self) -> None:
        """Discard the observed values."""
        self._reset()

    def _start(self, value: float) -> torch.Tensor:
        return torch.tensor(value, **self._factory)


class AbsMaxObserver(_AbsMax):
    """Record the smallest and the largest value in ``min_val`` and ``max_val``.

    Raises NotImplementedError for dtypes other than float8, and for asymmetric, per-channel,
    reduced-range or dynamic quantization.
    """

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Observe a tensor and return it."""
        if x_orig.numel():
            low, high = torch.aminmax(x_orig.detach().float())
            self.min_val = torch.minimum(self.min_val.to(low.device), low)
            self.max_val = torch.maximum(self.max_val.to(high.device), high)
        return x_orig

    def _largest(self) -> torch.Tensor:
        return torch.maximum(self.min_val.abs(), self.max_val.abs())

    def _reset(self) -> None:
        self.register_buffer("min_val", self._start(math.inf))
        self.register_buffer("max_val", self._start(-math.inf))


class SimpleAbsMaxObserver(_AbsMax):
    """Record the largest absolute value in ``abs_max_val``; see `AbsMaxObserver`."""

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        """Observe a tensor and return it."""
        if x_orig.numel():
            largest = x_orig.detach().float().abs().max()
            self.abs_max_val = torch.maximum(self.abs_max_val.to(largest.device), largest)
        return x_orig

    def _largest(self) -> torch.Tensor:
        return self.abs_max_val

    def _reset(self) -> None:
        self.register_buffer("abs_max_val", self._start(-math.inf))


def _aligned(scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.float8_e5m2:
        return torch.ones_like(scale)
    exponent = 4 * torch.ceil(torch.log2(scale) / 4)
    return torch.exp2(torch.clamp(exponent, -8, 4))
