"""Assumes which experts a router selects, so that sizes that depend on them are known.

A router selects the experts of each token with `topk`. In eager mode, the indices in the result are
replaced by indices that spread the tokens over all experts, so that the number of tokens for each
expert and rank is known. Every rank is assumed to select the same experts.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

_DTYPES = (torch.int64, torch.int32)
_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[2]),
)


class Routing:
    """Replaces `topk` and the exchange of integers between ranks.

    Parameters
    ----------
    imbalance
        Tokens of the first rank's experts relative to the mean, if all ranks share the experts.
    ranks
        Number of ranks.
    """

    def __init__(self, imbalance: float = 1.0, ranks: int = 1) -> None:
        self.imbalance, self._ranks = imbalance, ranks
        self.is_unbalanced = False
        """Whether a router selected the experts of the first rank more often than others."""
        self.lines: Counter[tuple[str, int]] = Counter()
        """How often each line of the script selected experts."""

    def install(self) -> None:
        """Replace the functions in eager mode only: recorded operators have no values."""
        if os.environ.get("PT_HPU_LAZY_MODE") == "1":
            return
        places: list[Any] = [torch, torch.Tensor]
        for place in places:
            place.topk = self._assuming(place.topk)
        if dist.is_available():
            modules: list[Any] = [dist, dist.distributed_c10d]
            for module in modules:
                module.all_to_all_single = _repeating(module.all_to_all_single)

    def _assuming(self, topk: Any) -> Any:
        @functools.wraps(topk)
        def selected(*arguments: Any, **options: Any) -> Any:
            result = topk(*arguments, **options)
            if not torch.compiler.is_compiling():
                scores = arguments[0] if arguments else options.get("input")
                self._assume(scores, result[1])
            return result

        return selected

    def _assume(self, scores: Any, indices: Any) -> None:
        if type(indices) is not torch.Tensor or indices.device.type != "hpu":
            return
        if not scores.is_floating_point() or not indices.numel():
            return
        if scores.shape[:-1] != indices.shape[:-1]:  # of another dimension
            return
        experts, choices = scores.shape[-1], indices.shape[-1]
        found = self.experts(indices.numel() // choices, choices, experts)
        with _without_price():
            indices.data.copy_(found.view(indices.shape))
        self.lines[_own_line()] += 1

    def experts(self, tokens: int, choices: int, experts: int) -> torch.Tensor:
        """Return the experts of each token, as a matrix of `tokens` x `choices`."""
        share = torch.full((experts,), 1 / experts, dtype=torch.float64)
        if self.imbalance > 1 and experts % self._ranks == 0:
            self.is_unbalanced = True
            own = experts // self._ranks
            share[:own] = self.imbalance / experts
            share[own:] = (1 - self.imbalance / self._ranks) / (experts - own)
        total = tokens * choices
        # Fractions are rounded up for the first experts, so that this rank is the busiest one.
        ends = (share.cumsum(0) * total - 1e-6).ceil()
        ends[-1] = total
        ordered = torch.searchsorted(ends, torch.arange(total, dtype=torch.float64), right=True)
        # A token's choices are far apart in this order, so they are different experts.
        return ordered.view(choices, tokens).T


def _repeating(exchange: Any) -> Any:
    """Return an exchange in which all ranks send the same integers as this one."""

    @functools.wraps(exchange)
    def repeated(
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        if type(input) is torch.Tensor and input.dtype in _DTYPES and input.device.type == "hpu":
            ranks, rank = dist.get_world_size(group), dist.get_rank(group)
            with _without_price():
                sizes = input_split_sizes or input.shape[0] // max(ranks, 1)
                own = input.split(sizes)[rank]
                if rank >= 0 and own.shape[0] * ranks == output.shape[0]:
                    input = torch.cat([own] * ranks)
                    input_split_sizes = output_split_sizes
        return exchange(output, input, output_split_sizes, input_split_sizes, group, async_op)

    return repeated


@contextmanager
def _without_price() -> Iterator[None]:
    """Run operators that are not part of the script without advancing the card's clock."""
    enable: Any = torch._C._autograd._enable_record_function  # type: ignore[attr-defined]
    enable(False)
    try:
        yield
    finally:
        enable(True)


def _own_line() -> tuple[str, int]:
    """Return the innermost running line of the script."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith((*_LIBRARIES, "<frozen")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "", 0
