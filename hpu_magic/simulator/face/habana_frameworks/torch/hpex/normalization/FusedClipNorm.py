"""Clipping of gradients by their common norm."""

from __future__ import annotations

from collections.abc import Iterable

from habana_frameworks.torch import _hpex_C
from habana_frameworks.torch._mode import is_lazy

import torch

_NORM_TYPE = 2.0


class FusedClipNorm:
    """Clips gradients on the device, as ``torch.nn.utils.clip_grad_norm_`` does by the 2-norm.

    Parameters
    ----------
    parameters : iterable of torch.Tensor
        Taken for the vendor's signature; `clip_norm` is given those to clip.
    max_norm : float
        The largest norm.
    """

    def __init__(self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float) -> None:
        self.max_norm_t = torch.tensor([float(max_norm)]).to("hpu")

    def clip_norm(self, parameters: Iterable[torch.Tensor] | torch.Tensor) -> torch.Tensor:
        """Multiply the gradients in place so that their norm is at most the largest.

        Returns
        -------
        torch.Tensor
            The norm before, of one element on the device and of the first parameter's type; a
            zero on the CPU where no parameter has a gradient.
        """
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        grads = [parameter.grad for parameter in given if parameter.grad is not None]
        if not grads:
            return torch.tensor(0.0)
        norm = torch.empty(1, dtype=given[0].dtype, device="hpu")
        clip = _hpex_C.fused_norm if is_lazy() else torch.ops.hpu.fused_clip_norm
        total: torch.Tensor = clip([*grads, norm], self.max_norm_t, _NORM_TYPE)
        return total
