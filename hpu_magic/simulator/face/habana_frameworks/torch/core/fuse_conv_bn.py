"""Fuse batch normalizations into the preceding convolutions."""

from __future__ import annotations

import logging

from torch import nn

_NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fuse(model: nn.Module) -> nn.Module:
    """Return a copy of `model` with fused batch norms, or `model` itself if none can be fused.

    For each output channel, the weight becomes ``w * gamma / sqrt(var + eps)`` and the bias
    ``(b - mean) * gamma / sqrt(var + eps) + beta``.
    """
    if model.training:
        print("Fusion is only applicable for eval mode")
        return model
    if any(each.device.type != "cpu" for each in model.parameters()):
        print("This fusion pass is to be run for model on CPU, Skipping!")
        return model
    if not any(isinstance(each, _NORMALIZATIONS) for each in model.modules()):
        return model
    from torch.fx.experimental import optimization

    try:
        return optimization.fuse(model)
    except Exception as error:  # any code may fail in any way; the original model is equivalent
        print(
            f"{type(model).__name__} keeps its batch normalizations because torch.fx cannot fuse "
            "them: "
            f"{error}"
        )
        logging.getLogger("habana_frameworks.torch").info("torch.fx failed", exc_info=True)
        return model
