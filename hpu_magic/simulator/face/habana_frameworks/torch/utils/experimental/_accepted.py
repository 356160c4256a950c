"""Settings for the vendor's graph compiler and allocator, which have no effect in the simulator."""

from __future__ import annotations

import torch


def _set_is_dynamic_quantization(is_dynamic: bool) -> None:
    """Accept a flag for scales computed at run time; operators support both cases."""


def _set_scale_attributes(hw_aligned: bool, scale_method: int) -> None:
    """Accept the properties of scales that can change between runs.

    `hw_aligned` specifies whether the hardware applies the scales at no cost, and `scale_method` is
    the number of a scaling method in Neural Compressor.
    """


def _record_param(
    name: str,
    t_start: int,
    t_size: int,
    is_param: bool = False,
    is_grad: bool = False,
    is_optim_state: bool = False,
) -> None:
    """Accept a name for a tensor's memory, which the simulator does not report."""


def _record_params(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    force_model_update: bool = False,
) -> None:
    """Accept the names of the tensors in a model and an optimizer; see `_record_param`."""
