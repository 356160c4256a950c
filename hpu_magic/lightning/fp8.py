"""8-bit training by the vendor's Transformer Engine: its recipe, its region and its layers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import nn

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device


def require_fp8() -> None:
    """Check that the machine's cards compute in 8 bits.

    Raises
    ------
    HPUError
        They are of the first generation.
    """
    generation = device.generation()
    if generation == "GAUDI":
        raise HPUError(
            "precision='fp8' needs a Gaudi2 or a later card, and this machine has GAUDI: write "
            "precision='bf16-mixed'."
        )


def recipe_of(recipe: Any) -> Any:
    """Return a recipe, made of its options where those are given.

    Parameters
    ----------
    recipe : DelayedScaling, mapping or None
        A mapping holds the arguments of ``DelayedScaling``, with the format by name.

    Raises
    ------
    HPUError
        The mapping has an unknown option or format, or the value is neither.
    """
    recipes = _transformer_engine().recipe
    if recipe is None:
        return recipes.DelayedScaling()
    if isinstance(recipe, Mapping):
        options = dict(recipe)
        known = list(inspect.signature(recipes.DelayedScaling).parameters)
        for option in options:
            if option not in known:
                mend = suggestion(option, known) or f"there are {', '.join(known)}."
                raise HPUError(f"A recipe has no option {option!r}: {mend}")
        name = options.get("fp8_format")
        if isinstance(name, str):
            formats = recipes.Format.__members__
            if name not in formats:
                mend = suggestion(name, formats) or f"write {' or '.join(map(repr, formats))}."
                raise HPUError(f"The recipe's fp8_format={name!r} is no format: {mend}")
            options["fp8_format"] = formats[name]
        return recipes.DelayedScaling(**options)
    if not isinstance(recipe, recipes.DelayedScaling):
        raise HPUError(
            f"recipe={recipe!r} is no recipe: write DelayedScaling(...), or its arguments as a "
            "dictionary."
        )
    return recipe


def autocast(recipe: Any) -> Any:
    """Return the region in which the layers compute in 8 bits."""
    return _transformer_engine().fp8_autocast(enabled=True, fp8_recipe=recipe)


def with_replaced_layers(module: nn.Module) -> nn.Module:
    """Put layers of the Transformer Engine in the place of all ``nn.Linear``, in place.

    They take over parameters, buffers, hooks and other attributes; where a layer is used twice, its
    replacement is. Classes derived from ``nn.Linear``, and layers whose `forward` was replaced,
    stay, since they may compute something else.

    Returns
    -------
    torch.nn.Module
        `module` itself, or its replacement where it is an ``nn.Linear``.
    """
    replaced = {
        layer: _replacement(layer)
        for layer in module.modules()
        if type(layer) is nn.Linear and "forward" not in vars(layer)
    }
    for parent in list(module.modules()):
        for name, child in parent._modules.items():
            if child in replaced:
                parent._modules[name] = replaced[child]
    return replaced.get(module, module)  # type: ignore[call-overload,no-any-return]


def _replacement(layer: nn.Linear) -> nn.Module:
    made = _transformer_engine().Linear(
        layer.in_features,
        layer.out_features,
        bias=layer.bias is not None,
        skip_weight_param_allocation=True,
    )
    # All that the layer is, with weights that a hook computes of others, as those of weight_norm.
    vars(made).update(vars(layer))
    for name, hooks in vars(layer).items():
        if name.endswith(
            "_hooks"
        ):  # changed in place: handles remove hooks from these dictionaries
            hooks.update({key: _of(made, hook) for key, hook in hooks.items()})
    return made  # type: ignore[no-any-return]


def _of(made: nn.Module, hook: Any) -> Any:
    """Return a hook that is called with the module that it was registered on: now with `made`."""
    if getattr(hook, "with_module", False):
        return type(hook)(hook.hook, made)
    return hook


def _transformer_engine() -> ModuleType:
    try:
        from habana_frameworks.torch.hpex.experimental import transformer_engine
    except ImportError as missing:
        raise HPUError(
            f"precision='fp8' needs the vendor's Transformer Engine, and {missing.name} is not "
            "installed: install it, or write precision='bf16-mixed'."
        ) from missing
    return transformer_engine  # type: ignore[no-any-return]
