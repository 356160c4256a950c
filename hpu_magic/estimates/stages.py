"""Whether a model has a layer for each card of a pipeline."""

from __future__ import annotations

from torch import nn

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import Layout


def refuse_empty_stages(model: nn.Module, layout: Layout) -> None:
    """Raise an error if a card of a pipeline would have no layer.

    Raises
    ------
    EstimateError
        The model has fewer layers than the pipeline has cards.
    """
    count = layers_in_sequence(model)
    if layout.pipeline > count:
        several = "1 layer" if count == 1 else f"{count} layers in sequence"
        mend = "leave pp out" if count == 1 else f"give a pp of at most {count}"
        raise EstimateError(
            f"pp={layout.pipeline} gives each card a stage of layers, and {type(model).__name__} "
            f"has {several}: {mend}."
        )


def layers_in_sequence(model: nn.Module) -> int:
    """Return how many layers a pipeline can divide; at least 1.

    They are the modules of its lists that have parameters; for a model without lists, its own
    modules. In a list's modules those of `nn.Sequential` count one by one, and others, which may be
    side by side as experts and heads are, do not.
    """
    listed = _listed(model)
    return listed or max(sum(map(_has_parameters, model.children())), 1)


def _listed(module: nn.Module, *, within: bool = False) -> int:
    members = list(module.children())
    if within:
        in_sequence = isinstance(module, nn.Sequential) and any(
            any(True for _ in one.children()) for one in members
        )
    else:
        in_sequence = isinstance(module, nn.ModuleList | nn.Sequential)
    if in_sequence:
        return sum(max(_listed(one, within=True), 1) for one in members if _has_parameters(one))
    return sum(_listed(one, within=within) for one in members)


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())
