"""Check that a model has at least one layer for each stage of a pipeline."""

from __future__ import annotations

from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout


def check_stages(model: nn.Module, layout: Layout) -> None:
    """Raise `EstimateError` if the model has fewer layers than the pipeline has cards."""
    count = layers_in_sequence(model)
    if layout.pipeline > count:
        several = "1 layer" if count == 1 else f"{count} layers in sequence"
        fix = "omit pp" if count == 1 else f"use at most pp={count}"
        raise EstimateError(
            f"pp={layout.pipeline} needs at least one layer per stage, but "
            f"{type(model).__name__} has {several}: {fix}."
        )


def layers_in_sequence(model: nn.Module) -> int:
    """Return the number of layers that a pipeline can distribute, which is at least 1.

    Layers are the modules with parameters in a model's module lists or, if it has no lists, its
    direct children. Within a list, the modules of an `nn.Sequential` are counted separately. Any
    other module counts as one layer, because its submodules may run in parallel, as experts and
    heads do.
    """
    listed = _listed(model)
    return listed or max(sum(map(_has_parameters, model.children())), 1)


def _listed(module: nn.Module, *, within: bool = False) -> int:
    members = list(module.children())
    if within:
        in_sequence = isinstance(module, nn.Sequential) and any(
            any(True for _ in member.children()) for member in members
        )
    else:
        in_sequence = isinstance(module, nn.ModuleList | nn.Sequential)
    if in_sequence:
        return sum(max(_listed(each, within=True), 1) for each in members if _has_parameters(each))
    return sum(_listed(member, within=within) for member in members)


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
