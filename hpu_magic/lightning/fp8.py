"""FP8 training with the vendor's Transformer Engine: recipe, autocast and layers."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from torch import nn

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.device import device


def require_fp8() -> None:
    """Raise HPUError if the cards are first-generation Gaudi cards, which do not support FP8."""
    if device.generation() == "GAUDI":
        raise HPUError(
            "precision='fp8' needs a Gaudi2 or later card, but this machine has GAUDI: write "
            "precision='bf16-mixed'."
        )


def check_options(precision: str, options: bool) -> None:
    """Check that the precision supports the FP8 options that are set, and the card supports FP8.

    Raises
    ------
    HPUError
        The precision does not support the options, or the card does not support FP8.
    """
    if precision == "fp8":
        require_fp8()
    elif options:
        raise HPUError(
            f"recipe and replace_layers are options of precision='fp8', not of {precision!r}: "
            "remove them."
        )


def recipe_of(recipe: Any) -> Any:
    """Return `recipe` as a ``DelayedScaling``.

    `recipe` may also be None or a mapping of arguments, in which the format can be a name.

    Raises
    ------
    HPUError
        The mapping contains an unknown option or format, or `recipe` has an unsupported type.
    """
    recipes = _transformer_engine().recipe
    if recipe is None:
        return recipes.DelayedScaling()
    if isinstance(recipe, Mapping):
        options = dict(recipe)
        known = list(inspect.signature(recipes.DelayedScaling).parameters)
        for option in options:
            if option not in known:
                fix = suggestion(option, known) or f"use {', '.join(known)}."
                raise HPUError(f"The recipe's option {option!r} is unknown: {fix}")
        name = options.get("fp8_format")
        if isinstance(name, str):
            formats = recipes.Format.__members__
            if name not in formats:
                fix = suggestion(name, formats) or f"write {' or '.join(map(repr, formats))}."
                raise HPUError(f"The recipe's fp8_format={name!r} is not a valid format: {fix}")
            options["fp8_format"] = formats[name]
        return recipes.DelayedScaling(**options)
    if not isinstance(recipe, recipes.DelayedScaling):
        raise HPUError(
            f"recipe={recipe!r} is not a recipe: write DelayedScaling(...), or pass its arguments "
            "as a dictionary."
        )
    return recipe


def autocast(recipe: Any) -> Any:
    """Return a context manager in which layers compute in FP8."""
    return _transformer_engine().fp8_autocast(enabled=True, fp8_recipe=recipe)


def with_replaced_layers(module: nn.Module) -> nn.Module:
    """Replace all ``nn.Linear`` layers in `module` with Transformer Engine layers, and return it.

    The module is changed in place; if it is an ``nn.Linear`` itself, its replacement is returned.
    The new layers take over the parameters, buffers, hooks and other attributes of the old ones. A
    layer that is used twice gets a single replacement. Subclasses of ``nn.Linear`` and layers with
    a patched `forward` are not replaced, because they may compute something else.
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
    new = _transformer_engine().Linear(
        layer.in_features,
        layer.out_features,
        bias=layer.bias is not None,
        skip_weight_param_allocation=True,
    )
    # Copy all attributes, including weights computed by hooks such as weight_norm's.
    vars(new).update(vars(layer))
    for name, hooks in vars(layer).items():
        # Modify the dictionaries in place, because handles remove their hooks from them.
        if name.endswith("_hooks"):
            hooks.update({key: _rebound(hook, new) for key, hook in hooks.items()})
    return new  # type: ignore[no-any-return]


def _rebound(hook: Any, module: nn.Module) -> Any:
    """If a hook takes its module as an argument, return it bound to `module`."""
    if getattr(hook, "with_module", False):
        return type(hook)(hook.hook, module)
    return hook


def _transformer_engine() -> ModuleType:
    try:
        from habana_frameworks.torch.hpex.experimental import transformer_engine
    except ImportError as missing:
        raise HPUError(
            f"precision='fp8' needs the vendor's Transformer Engine, but {missing.name} is not "
            "installed: install it, or write precision='bf16-mixed'."
        ) from missing
    return transformer_engine  # type: ignore[no-any-return]
