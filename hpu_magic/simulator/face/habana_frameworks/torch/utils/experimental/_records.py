"""Names of tensors for the reports of the vendor's allocator.

The simulator writes no such reports, so the names are accepted and reach nobody.
"""

from __future__ import annotations

import torch


def _record_param(
    name: str,
    t_start: int,
    t_size: int,
    is_param: bool = False,
    is_grad: bool = False,
    is_optim_state: bool = False,
) -> None:
    """Accept the name of a piece of memory, and do nothing with it."""


def _record_params(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    force_model_update: bool = False,
) -> None:
    """Accept the names of a model's and an optimizer's tensors, and do nothing with them."""
