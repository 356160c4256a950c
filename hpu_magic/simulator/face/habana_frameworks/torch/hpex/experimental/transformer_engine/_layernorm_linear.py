"""Layer normalization and the linear layer behind it."""

from __future__ import annotations

from habana_frameworks.torch.hpex.experimental.transformer_engine._linear import Linear

import torch
from torch import nn
from torch.nn import functional


class LayerNormLinear(Linear):
    """Layer normalization over the last dimension, then a `Linear`.

    The normalization is in the type of the input; the linear layer behind it computes in 8 bits
    within `fp8_autocast`.

    Parameters
    ----------
    in_features, out_features : int
    eps : float
        Added to the variance.
    bias : bool
        Whether the linear layer has one.
    params_dtype : torch.dtype, optional
        Type of the parameters, by default PyTorch's.
    minimize_memory : bool
        Cast the weight again for the backward pass in place of keeping it in 8 bits.
    device : torch.device or str
        Where the parameters are made.

    Raises
    ------
    ValueError
        For features and types that it does not take.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        bias: bool = True,
        params_dtype: torch.dtype | None = None,
        minimize_memory: bool = False,
        *,
        device: torch.device | str = "hpu",
    ) -> None:
        super().__init__(
            in_features,
            out_features,
            bias,
            params_dtype,
            minimize_memory=minimize_memory,
            device=device,
        )
        self.eps = eps
        like = {"device": device, "dtype": params_dtype}
        self.layer_norm_weight = nn.Parameter(torch.ones(in_features, **like))
        self.layer_norm_bias = nn.Parameter(torch.zeros(in_features, **like))

    def forward(
        self,
        inp: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        is_first_microbatch: bool | None = None,
    ) -> torch.Tensor:
        """Normalize [..., in_features] and apply the linear layer, as `Linear.forward` does.

        Raises
        ------
        ValueError
            The input has another number of features.
        TypeError
            Within `fp8_autocast`: the input is of a type, or on a device, without casts to 8 bits.
        """
        if inp.dim() == 0 or inp.shape[-1] != self.in_features:
            raise ValueError(
                f"{type(self).__name__} takes {self.in_features} features in the last dimension, "
                f"but its input has shape {tuple(inp.shape)}."
            )
        gamma, beta = self.layer_norm_weight, self.layer_norm_bias
        if not torch.is_autocast_enabled(inp.device.type):
            gamma, beta = gamma.to(inp.dtype), beta.to(inp.dtype)
        normalized = functional.layer_norm(inp, (self.in_features,), gamma, beta, self.eps)
        return super().forward(normalized, weight, bias, is_first_microbatch)
