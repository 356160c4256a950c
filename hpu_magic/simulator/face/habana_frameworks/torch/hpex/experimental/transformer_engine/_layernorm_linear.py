"""Layer normalization followed by a linear layer."""

from __future__ import annotations

from habana_frameworks.torch.hpex.experimental.transformer_engine._linear import (
    Linear,
    require_features,
)

import torch
from torch import nn
from torch.nn import functional


class LayerNormLinear(Linear):
    """Layer normalization over the last dimension, followed by a `Linear`.

    The normalization runs in the dtype of the input, and the linear layer runs in FP8 within
    `fp8_autocast`. `eps` is added to the variance; the other parameters and the errors are the same
    as those of `Linear`.
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
        """Normalize a [..., in_features] input and apply the layer; see `Linear.forward`."""
        require_features(self, inp, self.in_features)
        gamma, beta = self.layer_norm_weight, self.layer_norm_bias
        if not torch.is_autocast_enabled(inp.device.type):
            gamma, beta = gamma.to(inp.dtype), beta.to(inp.dtype)
        normalized = functional.layer_norm(inp, (self.in_features,), gamma, beta, self.eps)
        return super().forward(normalized, weight, bias, is_first_microbatch)
