"""Changes to the captured graphs, so that they do no more work than eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Tensor: aten.div_.Tensor,
    aten.div.Scalar: aten.div_.Scalar,
}
_FRESH = frozenset(
    {
        *_IN_PLACE,
        aten.addmm.default,
        aten.bernoulli.p,
        aten.bmm.default,
        aten.convolution.default,
        aten.mm.default,
        aten.native_dropout_backward.default,
        aten.select_backward.default,
        aten.threshold_backward.default,
    }
)
"""Operators whose result is always memory of its own."""


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    # The scaled noise serves as the mask: one product each way, as in eager mode. It is drawn in
    # the order of memory, so that the same seed drops the same elements as there.
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    back = sorted(range(x.dim()), key=order.__getitem__)
    noise = (torch.bernoulli(x.permute(order), 1 - p) / (1 - p)).permute(back)
    return x * noise, noise


def _native_dropout_backward(
    gradient: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    return gradient * mask * scale if mask.dtype == torch.bool else gradient * mask


DROPOUT: dict[Any, Callable[..., Any]] = {
    aten.native_dropout.default: _native_dropout,
    aten.native_dropout_backward.default: _native_dropout_backward,
}
"""Decompositions that AOTAutograd applies while it traces."""


def reinplace(graph: torch.fx.Graph) -> None:
    """Let an operator write over its first operand where nothing else reads that again."""
    for node in graph.nodes:
        if node.target in _IN_PLACE and _may_overwrite(node):
            node.target = _IN_PLACE[node.target]


def _may_overwrite(node: torch.fx.Node) -> bool:
    first, *others = node.args
    if not isinstance(first, torch.fx.Node) or first.target not in _FRESH or first in others:
        return False
    if len(first.users) != 1:
        return False
    before, after = first.meta.get("val"), node.meta.get("val")
    return (
        isinstance(before, torch.Tensor)
        and isinstance(after, torch.Tensor)
        and (before.dtype, before.device, before.shape, before.stride())
        == (after.dtype, after.device, after.shape, after.stride())
    )
