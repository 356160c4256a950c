"""Backward passes of `torch.autograd.Function` that have no derivative."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hpu_magic.simulator import engine

Backward = Callable[..., Any]


def once_differentiable(name: str) -> Callable[[Backward], Backward]:
    """Return a decorator for a backward pass, so that each second derivative raises an error.

    PyTorch's decorator of this name returns gradients without an error if the incoming gradients
    require none, such as those of a sum. Otherwise ``backward(inputs=...)`` and
    ``torch.autograd.grad`` skip the error. Both lose the second derivative.

    Parameters
    ----------
    name : str
        Name of the function in the error.
    """
    refusal = (
        f"{name} has first derivatives only, but create_graph=True and a second backward pass need "
        "second ones; run this part of the model without it."
    )

    def decorated(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            if torch.compiler.is_compiling():  # the compiled graph refuses second derivatives
                return backward(ctx, *grads)  # type: ignore[no-any-return]
            with torch.no_grad():
                gradients = backward(ctx, *grads)
            if not torch.is_grad_enabled():
                return gradients  # type: ignore[no-any-return]
            refusing = iter(
                engine.load().differentiable_once(_tensors(gradients), _tensors(grads), refusal)
            )
            return tuple(None if each is None else next(refusing) for each in gradients)

        return once

    return decorated


def _tensors(gradients: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    return [each for each in gradients if each is not None]
