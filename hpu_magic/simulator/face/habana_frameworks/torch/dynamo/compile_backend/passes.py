"""Changes to the captured graphs, so that they do no more work than eager mode, or less."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.dynamo.compile_backend.products import (
    LINEAR,
    Form,
    is_faster_by_onednn,
)

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
        LINEAR,
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


_TRANSPOSITIONS: dict[Any, tuple[Any, ...]] = {
    aten.t.default: (),
    aten.permute.default: ([1, 0],),
    aten.transpose.int: (0, 1),
}
_LARGE = 1 << 20
"""Multiplications from which on a faster library makes up for its later start."""


@functools.lru_cache(maxsize=1)
def _is_drawn_in_memory_order() -> bool:
    """Return whether noise fills a transposed tensor row by row as it lies in memory.

    Older releases that are built with MKL fill it in the order of its indices.
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
    # The scaled noise serves as the mask: one product each way, as in eager mode. It is drawn in
    # the same order, so that the same seed drops the same elements as there.
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


def use_onednn(graph: torch.fx.Graph) -> None:
    """Let oneDNN compute large products, with the bias that is added to them, if it is faster.

    Not the ReLU after one: oneDNN's makes 0 of what is not a number.
    """
    for node in list(graph.nodes):
        if node.target is aten.addmm.default and not node.kwargs:
            bias, left, right = node.args
        elif node.target is aten.mm.default:
            bias, (left, right) = None, node.args
        else:
            continue
        if _is_large_product(node, bias, left) and is_faster_by_onednn(_form(left, right)):
            _replace_product(graph, node, bias, left, right)


def _form(left: torch.fx.Node, right: torch.fx.Node) -> Form:
    if _lies_by_columns(right):
        return "linear"
    return "left transposed" if _lies_by_columns(left) else "plain"


def _lies_by_columns(matrix: torch.fx.Node) -> bool:
    first, second = matrix.meta["val"].stride()
    return type(first) is int and first == 1 and not (type(second) is int and second == 1)


def _is_large_product(node: torch.fx.Node, bias: Any, left: torch.fx.Node) -> bool:
    result, inner = node.meta["val"], left.meta["val"].shape[-1]
    if result.dtype != torch.float32 or not all(type(n) is int for n in (*result.shape, inner)):
        return False
    if bias is not None:
        given = bias.meta["val"]
        if given.shape != result.shape[1:] or given.stride() != (1,):
            return False
    return bool(result.numel() * inner >= _LARGE)


def _replace_product(
    graph: torch.fx.Graph, product: torch.fx.Node, bias: Any, left: Any, right: Any
) -> None:
    with graph.inserting_before(product):
        if _is_transposition(right):
            weight = right.args[0]
        else:
            weight = graph.call_function(aten.t.default, (right,))
            weight.meta["val"] = right.meta["val"].t()
        faster = graph.call_function(LINEAR, (left, weight, bias, "none", [], ""))
    faster.meta["val"] = product.meta["val"]
    product.replace_all_uses_with(faster)
    graph.erase_node(product)
    if not right.users and right.op != "placeholder":
        graph.erase_node(right)


def _is_transposition(node: torch.fx.Node) -> bool:
    return node.target in _TRANSPOSITIONS and node.args[1:] == _TRANSPOSITIONS[node.target]
