"""A traced step, whose time and memory can be estimated for many cards and layouts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import nn

from hpu_magic.estimates.calls import Call
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.deepspeed.configuration import check, read
from hpu_magic.estimates.layout import Buckets, parse
from hpu_magic.estimates.options import checked
from hpu_magic.estimates.result import Estimate
from hpu_magic.estimates.step_estimate import StepEstimator
from hpu_magic.estimates.tracing.program import Program
from hpu_magic.estimates.tracing.step import StepOptions


class TracedStep:
    """A step of a model that is traced once and can be estimated many times.

    The step is traced again only if it computes different tensors: for another batch size, for
    accumulated gradients, for the optimizer of a DeepSpeed configuration, and for fp32, bf16 and
    bf16-mixed. Every trace is kept. ``mode`` is the default mode of the estimates.
    """

    def __init__(
        self,
        model: nn.Module,
        call: Call,
        *,
        train: bool,
        mode: str,
        optimizer: torch.optim.Optimizer | str | None,
        checkpointing: str,
        loss: Callable[[Any], torch.Tensor] | None,
    ) -> None:
        self._model, self._call, self._train, self._mode = model, call, train, mode
        self._optimizer = optimizer
        self._buckets = Buckets()
        self._fixed: dict[str, Any] = {"checkpointing": checkpointing, "loss": loss}
        # Maps each of DeepSpeed's optimizers to its traces; the key None is for the estimate's own
        # optimizer.
        self._programs: dict[str | None, dict[StepOptions, Program]] = {}

    def __repr__(self) -> str:
        kind = "training step" if self._train else "forward pass"
        return f"Trace of a {kind} of {type(self._model).__name__}; call estimate(card=...)."

    def with_buckets(self, buckets: Buckets) -> TracedStep:
        """Return this step with other buckets of gradients; both use the same traces."""
        step = copy(self)
        step._buckets = buckets
        return step

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
        expert_parallel: int = 1,
        imbalance: float = 1.0,
        deepspeed: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    ) -> Estimate:
        """Estimate the step; the arguments and the result are those of `hpu_magic.estimate`."""
        configuration = None
        if deepspeed is not None:
            configuration = read(
                deepspeed, self._model, cards=parse(cards).cards, accumulate=accumulate
            )
            check(
                configuration,
                train=self._train,
                parallel=parallel,
                dtype=dtype,
                expert_parallel=expert_parallel,
            )
            parallel, accumulate = configuration.layout, configuration.accumulate
            dtype = dtype or configuration.dtype
        replacement = configuration.optimizer if configuration else None
        hardware = generation_named(card)
        layout = replace(parse(cards, parallel, expert_parallel, imbalance), buckets=self._buckets)
        options = checked(
            self._model,
            train=self._train,
            mode=mode or self._mode,
            dtype=dtype,
            optimizer=replacement or self._optimizer,
            accumulate=accumulate,
            batch=batch,
            attention=attention,
            **self._fixed,
        )
        estimator = StepEstimator(
            self._model,
            self._call,
            options,
            hardware,
            layout,
            configuration,
            known=self._programs.setdefault(replacement, {}),
        )
        return estimator.largest() if batch == "largest" else estimator.of_batch()
