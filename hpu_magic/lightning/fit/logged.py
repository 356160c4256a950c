"""Read the values that a fit logs; Lightning's result collections hold them as device tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hpu_magic.runtime.training.curves import LOSS, Curve, Curves
from hpu_magic.runtime.training.metric_names import metric_of, validation_loss


def loss_of(outputs: Any) -> Any | None:
    """Return the detached loss from the return value of a training step, or None."""
    loss: Any = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss.detach() if getattr(loss, "requires_grad", False) else loss


def goals_of(callbacks: Iterable[Any]) -> dict[str, str]:
    """Map each metric that a callback such as EarlyStopping monitors to ``min`` or ``max``."""
    return {
        monitored: mode
        for callback in callbacks
        if (monitored := getattr(callback, "monitor", None)) is not None
        and (mode := getattr(callback, "mode", None)) in ("min", "max")
    }


class Logged:
    """Finds new values in Lightning's result collections, and adds curves for them."""

    def __init__(self, curves: Curves) -> None:
        self._curves = curves
        self._known: dict[tuple[str, str, str], Curve | None] = {}
        self._last: dict[tuple[str, str, str], Any] = {}
        self._loss: Curve | None = None

    @property
    def loss(self) -> Curve | None:
        """The curve for the loss that the training step returns."""
        if self._loss is None:
            self._loss = self._curves.follow(LOSS, LOSS, "training", "step", returned=True)
        return self._loss

    def of_step(self, results: Any, stage: str) -> dict[Curve, Any]:
        """Return the values that the last batch logged."""
        new = {}
        for key, metric in results.items():
            if metric.meta.on_step:
                value = metric._forward_cache
                curve = self._if_new(results, key, metric, stage, "step", value)
                if curve is not None:
                    new[curve] = value
        return new

    def of_epoch(self, results: Any, values: Mapping[str, Any], stage: str) -> dict[Curve, Any]:
        """Return the values that the last epoch or validation logged.

        `results` contains the options of each metric, and `values` contains the callback metrics.
        """
        new = {}
        for key, metric in results.items():
            if metric.meta.on_epoch:
                value = values.get(results._forked_name(metric, on_step=False)[1])
                curve = self._if_new(results, key, metric, stage, "epoch", value)
                if curve is not None:
                    new[curve] = value
        return new

    def forget(self) -> None:
        """Drop references to tensors."""
        self._last.clear()

    def _if_new(
        self, results: Any, key: str, metric: Any, stage: str, every: str, value: Any
    ) -> Curve | None:
        place = (stage, every, key)
        if value is self._last.get(place) or not _is_number(value):
            return None
        self._last[place] = value
        if place not in self._known:
            self._known[place] = self._begin(results, metric, stage, every)
        return self._known[place]

    def _begin(self, results: Any, metric: Any, stage: str, every: str) -> Curve | None:
        _, name = results._forked_name(metric, on_step=every == "step")
        # A metric that is logged for several data loaders has a single chart.
        chart, on_bar = metric_of(metric.meta.name, stage), metric.meta.prog_bar
        if stage == "validation" and every == "epoch":
            names = [results._forked_name(each, False)[1] for each in results.values()]
            if name == validation_loss(names):
                on_bar = True
                # If no training value with this name is logged, use the chart of the returned loss.
                if chart not in self._curves.metrics and self._loss is not None:
                    chart = LOSS
        return self._curves.follow(name, chart, stage, every, on_bar=on_bar)


def _is_number(value: Any) -> bool:
    return value is not None and hasattr(value, "numel") and value.numel() == 1
