"""Preparing a process and a model for inference."""

from __future__ import annotations

import logging
import os
from typing import Any

from torch import nn

from .. import hpu
from .._mode import is_lazy

_RED, _PLAIN = "\033[91m", "\033[0m"
_WEIGHT_SHARING = ("PT_HPU_WEIGHT_SHARING", "EXPERIMENTAL_WEIGHT_SHARING")


def hpu_set_inference_env(model: nn.Module | None = None) -> nn.Module | None:
    """Switch inference mode on and fold the batch normalizations of `model`.

    Parameters
    ----------
    model : torch.nn.Module, optional
        In evaluation mode: a normalization still in training is not to be folded.

    Returns
    -------
    torch.nn.Module or None
        A copy of `model` whose convolutions include the normalizations that follow
        them; `model` itself when it is in training, has none, or ``torch.fx`` fails on it.
    """
    if is_lazy() and all(os.environ.get(name, "1") != "0" for name in _WEIGHT_SHARING):
        print(
            f"{_RED}Weight sharing is on: set PT_HPU_WEIGHT_SHARING=0 before the first import "
            f"of habana_frameworks.torch for inference.{_PLAIN}"
        )
    hpu.enable_inference_mode()
    return model if model is None else _fused(model)


def hpu_inference_initialize(
    model: nn.Module | None = None,
    mark_only_scales_as_const: bool = False,
    mark_scales: bool = True,
    mark_non_scales: bool = True,
    *,
    optimizer: Any = None,
    args: Any = None,
) -> None:
    """Mark the parameters of `model` as constants for the graph compiler; no result changes.

    Parameters
    ----------
    model : torch.nn.Module, optional
    mark_only_scales_as_const : bool
        Deprecated: ``mark_scales=True, mark_non_scales=False``.
    mark_scales, mark_non_scales : bool
        Which parameters to mark.
    optimizer, args
        Of older releases; ignored.
    """
    hpu.set_mark_scale_const(mark_scales or mark_only_scales_as_const)
    hpu.set_mark_non_scale_const(mark_non_scales and not mark_only_scales_as_const)


def hpu_teardown_inference_env() -> None:
    """Switch inference mode off."""
    hpu.disable_inference_mode()


hpu_set_env = hpu_set_inference_env
hpu_initialize = hpu_inference_initialize
hpu_reset_env = hpu_teardown_inference_env


def _fused(model: nn.Module) -> nn.Module:
    normalizations = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    if model.training or not any(isinstance(each, normalizations) for each in model.modules()):
        return model
    from torch.fx.experimental.optimization import fuse

    try:
        return fuse(model)
    except Exception:  # a model may do anything in forward; unfused it gives the same results
        logging.getLogger("habana_frameworks.torch").warning(
            "%s keeps its normalizations: torch.fx cannot fold them",
            type(model).__name__,
            exc_info=True,
        )
        return model
