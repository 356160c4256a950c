"""Code shared by all fused optimizers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.core.step_closure import mark_step
from habana_frameworks.torch.utils.internal import is_lazy

import torch


def marked(step: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an optimizer step so that `mark_step` runs before and after it in lazy mode."""

    @functools.wraps(step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_lazy():
            return step(*args, **kwargs)
        mark_step()
        result = step(*args, **kwargs)
        mark_step()
        return result

    return wrapper


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """Evaluate a closure with gradients enabled, like ``torch.optim``."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def with_gradients(group: dict[str, Any], sparse_error: str) -> list[torch.nn.Parameter]:
    """Return the parameters that have gradients; raise RuntimeError if a gradient is sparse."""
    parameters = [each for each in group["params"] if each.grad is not None]
    if any(each.grad.is_sparse for each in parameters):
        raise RuntimeError(sparse_error)
    return parameters


class GroupOptimizer(torch.optim.Optimizer):
    """An optimizer that updates each parameter group with `_step`."""

    _sparse_error: str

    @marked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform a step for each group, and return the closure's loss."""
        loss = loss_of(closure)
        for group in self.param_groups:
            parameters = with_gradients(group, self._sparse_error)
            if parameters:
                self._step(group, parameters)
        return loss


def move_to_parameters(group: dict[str, Any], *names: str) -> None:
    """Move tensors in a group to the device of its parameters.

    Tensors in a group are on the CPU after a checkpoint is loaded with ``map_location="cpu"``,
    because PyTorch moves only the tensors in the state of each parameter.
    """
    for name in names:
        if name in group:
            group[name] = group[name].to(group["params"][0].device)


def check_betas_and_epsilon(lr: float, betas: tuple[float, float], eps: float) -> None:
    """Raise the vendor's ValueError for invalid Adam options."""
    if lr < 0.0:
        raise ValueError(f"Invalid learning rate: {lr} - should be >= 0.0")
    for beta in betas:
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter: {beta} - should be in [0.0, 1.0[")
    if eps < 0.0:
        raise ValueError(f"Invalid epsilon value: {eps} - should be >= 0.0")
