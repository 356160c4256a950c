"""Compute in the same way as vLLM's Gaudi plugin where it differs from a model's definition.

The table verifies these rules: with them, transformers generates the same tokens as vLLM.
"""

from __future__ import annotations

import torch

BLOCK = 128  # tokens per block of the KV cache
LARGEST = 240.0  # of float8_e4m3fn on Gaudi 2


def masks(
    config: object, batch: int, prompt: int, length: int
) -> torch.Tensor | dict[str, torch.Tensor] | None:
    """Return the mask of each layer type, or None for a model without sliding windows.

    If all layers have a window, the plugin passes it only to the attention of prompts, as the
    number of earlier keys, so a query sees its own key, too. Decoding ignores the window.

    If some layers have a window, decoding uses the last blocks of the KV cache. The number of these
    blocks is the window divided by the block size.
    """
    window = getattr(config, "sliding_window", None)
    kinds = {*(getattr(config, "layer_types", None) or ())}
    if not window or ("sliding_attention" not in kinds and kinds):
        return None
    queries = torch.arange(length)[:, None]
    decoding = queries >= prompt
    if len(kinds) < 2:
        return _mask(torch.where(decoding, 0, queries - window), batch)
    blocks = window // BLOCK
    first = torch.where(decoding, (queries // BLOCK - blocks + 1) * BLOCK, queries - window + 1)
    return {
        "full_attention": _mask(torch.zeros_like(queries), batch),
        "sliding_attention": _mask(first, batch),
    }


def _mask(first: torch.Tensor, batch: int) -> torch.Tensor:
    """Return the additive mask of queries that see the keys from `first` to their own."""
    keys = torch.arange(len(first))
    hidden = (keys < first) | (keys > keys[:, None])
    mask = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.bfloat16).min)
    return mask.expand(batch, 1, -1, -1)


def to_fp8(values: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return float8 values of a product, which are at most 240 on Gaudi 2."""
    return (values.float() * factor.float()).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def requantized(
    stored: list[torch.Tensor], scales: list[torch.Tensor]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return float8 weights of layers that the plugin merges, and their common scale.

    The plugin divides the weights by two, so that they do not exceed 240, and quantizes them again
    with the largest scale of the merged layers.
    """
    halves = [(each.float() * 0.5).to(torch.float8_e4m3fn) for each in stored]
    doubled = [scale * 2.0 for scale in scales]
    common = torch.stack(doubled).max()
    wide = [half.bfloat16() * scale for half, scale in zip(halves, doubled, strict=True)]
    return [to_fp8(each, 1 / common) for each in wide], common


class Fp8Linear(torch.nn.Module):
    """A linear layer with float8 weights and activations, which has no bias.

    `scale` and `input_scale` are the scales of the weights and of the activations.
    """

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, input_scale: torch.Tensor
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight.float(), requires_grad=False)
        self.input_scale = float(input_scale)
        self.scale = float(scale) * self.input_scale

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the product in the type of `values`."""
        factor = torch.tensor(1 / self.input_scale)
        product = to_fp8(values, factor).float() @ self.weight.float().t()
        return (product * self.scale).to(values.dtype)
