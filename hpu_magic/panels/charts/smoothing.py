"""Smooth the curves of step values in the browser."""

from __future__ import annotations

from typing import Any

from bokeh.models import CustomJS, CustomJSTransform
from bokeh.models.widgets import Select

_AMOUNTS: list[Any] = [("0", "none"), *((text, text) for text in ("0.5", "0.8", "0.9", "0.97"))]
# As in TensorBoard: an exponential moving average, divided by the sum of its weights.
_SMOOTH = """
const weight = Number(amount.value)
if (!weight) return xs
let mean = 0, gathered = 0
return Float64Array.from(xs, x => {
  if (!isFinite(x)) return x
  mean = weight * mean + (1 - weight) * x
  gathered = weight * gathered + 1 - weight
  return mean / gathered
})
"""
_RAW = "return Number(amount.value) ? xs : new Float64Array(xs.length).fill(NaN)"
_AGAIN = "for (const each of [smooth, raw]) each.change.emit()"


class Smoothing:
    """The control for the amount of smoothing, and the transforms that it affects."""

    def __init__(self) -> None:
        self.amount = Select(options=_AMOUNTS, value="0")
        self.smooth = CustomJSTransform(args={"amount": self.amount}, v_func=_SMOOTH)
        self.raw = CustomJSTransform(args={"amount": self.amount}, v_func=_RAW)
        again = CustomJS(args={"smooth": self.smooth, "raw": self.raw}, code=_AGAIN)
        self.amount.js_on_change("value", again)
