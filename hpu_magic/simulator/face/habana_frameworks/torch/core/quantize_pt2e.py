"""Quantize exported graphs: export, prepare, calibrate, convert, save and load.

Only models without graph breaks can be exported.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from habana_frameworks.torch.core import _pt2e

import torch


def export(
    f: torch.nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> torch.fx.GraphModule:
    """Export a model as a graph, using sample arguments.

    Raises NotImplementedError if `args` is None or `kwargs` contains ``graph_break_present``. In
    these cases, the vendor's function exports the model as several graphs.
    """
    keywords = dict(kwargs or {})
    if args is None or keywords.pop("graph_break_present", False):
        raise NotImplementedError(
            "The simulator can only export a model as a single graph; pass sample arguments to "
            "export(), and remove graph breaks from the model."
        )
    program = torch.export.export(f, tuple(args), keywords or None, dynamic_shapes=dynamic_shapes)
    return program.module()


def prepare_pt2e(model: torch.fx.GraphModule, quantizer: Any) -> torch.fx.GraphModule:
    """Insert the quantizer's observers into an exported graph."""
    return _framework().prepare_pt2e(model, quantizer)


def convert_pt2e(
    model: torch.fx.GraphModule,
    use_reference_representation: bool = False,
    fold_quantize: bool = True,
) -> torch.fx.GraphModule:
    """Replace the observers in a graph with quantization operators that use the observed scales."""
    options = {"use_reference_representation": True} if use_reference_representation else {}
    return _framework().convert_pt2e(model, fold_quantize=fold_quantize, **options)


def save_pt2e(
    model: Any,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
) -> None:
    """Write an exported program to a file, like `torch.export.save`."""
    torch.export.save(model, f, extra_files=extra_files, opset_version=opset_version)


def load_pt2e(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> Any:
    """Read an exported program from a file, like `torch.export.load`."""
    return torch.export.load(
        f, extra_files=extra_files, expected_opset_version=expected_opset_version
    )


def _framework() -> Any:
    quantizers = _pt2e.need("quantizer").__name__.rpartition(".")[0]
    return importlib.import_module(f"{quantizers}.quantize_pt2e")
