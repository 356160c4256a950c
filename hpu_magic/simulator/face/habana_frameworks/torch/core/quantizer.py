"""Quantizer for exported graphs, and its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch._card_types import GAUDI2_E4M3FN_MAX
from habana_frameworks.torch.core import _pt2e
from habana_frameworks.torch.core.observer import AbsMaxObserver

import torch

_FLOAT8_RANGE = (-int(GAUDI2_E4M3FN_MAX), int(GAUDI2_E4M3FN_MAX))
QUANTIZER_MIN_MAX = {
    torch.int8: (-128, 127),
    torch.float8_e5m2: _FLOAT8_RANGE,
    torch.float8_e4m3fn: _FLOAT8_RANGE,
}
"""Range of the quantized values for each dtype."""

_SMALLEST_SCALE = 2**-12
_aten = torch.ops.aten
_INPUTS = {  # the kind of each operator input, in order
    _aten.linear.default: ("activation", "weight", "bias"),
    _aten.conv2d.default: ("activation", "weight", "bias"),
    _aten.matmul.default: ("activation", "activation"),
    _aten.max_pool2d.default: ("activation",),
}
_module = _pt2e.find("quantizer")
_Quantizer: Any = _module.Quantizer if _module else object


@dataclass(frozen=True)
class QuantizationConfig:
    """Quantization settings of an operator's tensors; a tensor set to None is not quantized."""

    input_activation: Any
    output_activation: Any
    weight: Any
    bias: Any


def habana_quant_config_symmetric(dtype: torch.dtype) -> QuantizationConfig:
    """Return the symmetric per-tensor configuration for an 8-bit dtype in `QUANTIZER_MIN_MAX`.

    Raises ImportError if PyTorch's quantization of exported graphs is not installed.
    """
    low, high = QUANTIZER_MIN_MAX[dtype]
    spec, observers = _pt2e.need("quantizer").QuantizationSpec, _pt2e.need("observer")

    def observed(margin: int) -> Any:
        return spec(
            dtype=dtype,
            quant_min=low,
            quant_max=high,
            qscheme=torch.per_tensor_symmetric,
            is_dynamic=False,
            observer_or_fake_quant_ctr=AbsMaxObserver.with_args(
                eps=_SMALLEST_SCALE, backoff_margin=margin
            ),
        )

    activation = observed(2)
    bias = spec(dtype=torch.float, observer_or_fake_quant_ctr=observers.PlaceholderObserver)
    return QuantizationConfig(activation, activation, observed(1), bias)


class habana_quantizer(_Quantizer):
    """Quantizer that annotates linear, matmul, convolution and max pooling nodes in a graph.

    Raises ImportError if PyTorch's quantization of exported graphs is not installed.
    """

    def __init__(self) -> None:
        _pt2e.need("quantizer")
        super().__init__()
        self.global_config: QuantizationConfig | None = None

    def set_global(self, quantization_config: QuantizationConfig) -> habana_quantizer:
        """Use a single configuration for all operators, and return the quantizer."""
        self.global_config = quantization_config
        return self

    def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """Annotate each supported operator with quantization settings for its inputs and output."""
        config = self.global_config
        if config is None:
            return model
        annotation = _pt2e.need("quantizer").QuantizationAnnotation
        specs = {
            "activation": config.input_activation,
            "weight": config.weight,
            "bias": config.bias,
        }
        for node in model.graph.nodes:
            kinds = _INPUTS.get(node.target, ())
            inputs = {
                argument: specs[kind]
                for argument, kind in zip(node.args, kinds, strict=False)
                if isinstance(argument, torch.fx.Node)
            }
            if inputs:
                node.meta["quantization_annotation"] = annotation(
                    input_qspec_map=inputs,
                    output_qspec=config.output_activation,
                    _annotated=True,
                )
        return model

    def validate(self, model: torch.fx.GraphModule) -> None:
        """Accept any annotated graph."""

    @classmethod
    def get_supported_operators(cls) -> list[Any]:
        """Return an empty list, like the vendor's quantizer."""
        return []
