"""Settings for the vendor's graph compiler and allocator, which have no effect in the simulator."""

from __future__ import annotations

import torch


def _set_is_dynamic_quantization(is_dynamic: bool) -> None:
    """Do nothing, because operators support scales whether or not they are computed at run time."""


def _set_scale_attributes(hw_aligned: bool, scale_method: int) -> None:
    """Do nothing; the arguments describe scales that can change between runs.

    `hw_aligned` is true if the hardware applies the scales at no cost, and `scale_method` is the
    number of a scaling method in Neural Compressor.
    """


def _record_param(
    name: str,
    t_start: int,
    t_size: int,
    is_param: bool = False,
    is_grad: bool = False,
    is_optim_state: bool = False,
) -> None:
    """Do nothing, because the simulator does not report the names of tensors in memory."""


def _record_params(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    force_model_update: bool = False,
) -> None:
    """Do nothing for the tensors of a model and an optimizer; see `_record_param`."""
