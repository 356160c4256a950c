"""A traced step, whose time and memory can be estimated for many cards and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from hpu_magic.estimates.calls import Call
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.layout import parse
from hpu_magic.estimates.options import checked, mode_here
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.step_estimate import StepEstimator
from hpu_magic.estimates.tracing.program import Program
from hpu_magic.estimates.tracing.step import StepOptions


class TracedStep:
    """A step of a model that is traced once and can be estimated many times.

    The step is traced again only if it computes different tensors: for another batch size, for
    accumulated gradients, and for fp32, bf16 and bf16-mixed. Each of these traces is kept.
    """

    def __init__(
        self,
        model: nn.Module,
        call: Call,
        *,
        train: bool,
        optimizer: torch.optim.Optimizer | str | None,
        checkpointing: str,
        loss: Callable[[Any], torch.Tensor] | None,
    ) -> None:
        self._model, self._call = model, call
        self._fixed: dict[str, Any] = {
            "train": train,
            "optimizer": optimizer,
            "checkpointing": checkpointing,
            "loss": loss,
        }
        self._programs: dict[StepOptions, Program] = {}

    def __repr__(self) -> str:
        kind = "training step" if self._fixed["train"] else "forward pass"
        return f"Trace of a {kind} of {type(self._model).__name__}; call estimate(card=...)."

    def estimate(
        self,
        *,
        card: str = "gaudi2",
        cards: int = 1,
        parallel: str | None = None,
        mode: str | None = None,
        dtype: str | None = None,
        accumulate: int = 1,
        batch: int | Literal["largest"] | None = None,
        attention: str = "torch",
    ) -> Estimate:
        """Estimate the step; the arguments and the result are those of `hpu_magic.estimate`."""
        options = checked(
            self._model,
            mode=mode or mode_here(self._model),
            dtype=dtype,
            accumulate=accumulate,
            batch=batch,
            attention=attention,
            **self._fixed,
        )
        hardware, layout = generation_named(card), parse(cards, parallel)
        estimator = StepEstimator(
            self._model, self._call, options, hardware, layout, known=self._programs
        )
        return estimator.largest() if batch == "largest" else estimator.of_batch()
