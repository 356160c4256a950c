"""Optimization passes for captured graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

aten = torch.ops.aten

_IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Tensor: aten.div_.Tensor,
    aten.div.Scalar: aten.div_.Scalar,
    aten.relu.default: aten.relu_.default,
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
"""Operators whose outputs never share memory with other tensors."""


@functools.lru_cache(maxsize=1)
def _is_drawn_in_memory_order() -> bool:
    """Return whether random numbers fill a transposed tensor in memory order.

    Older PyTorch releases with MKL fill such a tensor in index order.
    """

    def noise(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bernoulli_(0.5, generator=torch.Generator("cpu").manual_seed(0))

    with _disable_current_modes():
        drawn, transposed = (torch.empty(16, 16, device="cpu") for _ in range(2))
        return torch.equal(noise(drawn), noise(transposed.t()).t())


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
    # The dropout mask is already scaled, so the forward and backward passes each need a single
    # multiplication, as in eager mode. Random numbers are drawn in the same order as in eager mode,
    # so that a given seed drops the same elements.
    order = list(range(x.dim()))
    if _is_drawn_in_memory_order():
        order.sort(key=x.stride, reverse=True)
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
"""Decompositions that AOTAutograd applies during tracing."""


def reinplace(graph: torch.fx.Graph) -> None:
    """Let operators overwrite their first operand if no other operator reads it."""
    for node in graph.nodes:
        if node.target in _IN_PLACE and _may_overwrite(node):
            node.target = _IN_PLACE[node.target]


def copy_in_place(graph: torch.fx.Graph) -> None:
    """Let `index_copy` write to a graph input that its result would overwrite.

    AOTAutograd replaces `cache.index_copy_()` by `index_copy`, which copies the whole cache, and
    copies the result back at the end. Nothing else may read the input.
    """
    for node in list(graph.nodes):
        if node.target is not aten.index_copy.default or node.args[0].op != "placeholder":
            continue
        cache = node.args[0]
        others = [user for user in cache.users if user is not node]
        if [other.target for other in others] != [aten.copy_.default]:
            continue
        [back] = others
        if back.args[:2] == (cache, node):
            node.target = aten.index_copy_.default
            back.replace_all_uses_with(node)
            graph.erase_node(back)


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
