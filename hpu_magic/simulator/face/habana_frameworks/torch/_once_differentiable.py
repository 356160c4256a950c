"""Decorator for backward passes of `torch.autograd.Function` that are not differentiable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from hpu_magic.simulator import engine

Backward = Callable[..., Any]


def once_differentiable(name: str) -> Callable[[Backward], Backward]:
    """Return a decorator that makes second derivatives of the function `name` raise an error.

    PyTorch's decorator of the same name does not raise an error if the incoming gradients do not
    require grad, as is the case after a sum, or if ``backward(inputs=...)`` or
    ``torch.autograd.grad`` is called. In these cases, the second derivative is silently dropped.
    """
    refusal = (
        f"{name} supports only first derivatives, but create_graph=True and a second backward "
        f"pass require second derivatives; run this part of the model without {name}."
    )

    def decorated(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            if torch.compiler.is_compiling():  # the compiled graph raises this error
                return backward(ctx, *grads)
            with torch.no_grad():
                gradients = backward(ctx, *grads)
            if not torch.is_grad_enabled():
                return gradients
            refusing = iter(
                engine.load().differentiable_once(_tensors(gradients), _tensors(grads), refusal)
            )
            return tuple(None if each is None else next(refusing) for each in gradients)

        return once

    return decorated


def _tensors(gradients: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    return [each for each in gradients if each is not None]
