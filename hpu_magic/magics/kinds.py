"""Check the types of variables without importing the libraries that define these types."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_DEEPEST = 4
_LOOKED_AT = 100  # maximum number of elements to check in a container


def _is_a(value: Any, module: str, name: str) -> bool:
    """Return whether `value` is an instance of a class from an already imported module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def module(value: Any) -> bool:
    """Return whether `value` is a ``torch.nn.Module``."""
    return _is_a(value, "torch.nn", "Module")


def tensor(value: Any) -> bool:
    """Return whether `value` is a ``torch.Tensor``."""
    return _is_a(value, "torch", "Tensor")


def optimizer(value: Any) -> bool:
    """Return whether `value` is a ``torch.optim.Optimizer``."""
    return _is_a(value, "torch.optim", "Optimizer")


def movable(value: Any, depth: int = 0) -> bool:
    """Return whether `value` is a module, tensor, optimizer or pipeline, or a container of them."""
    from hpu_magic.runtime.device import pipelines

    if depth > _DEEPEST or "torch" not in sys.modules:
        return False
    if module(value) or tensor(value) or optimizer(value) or pipelines.is_pipeline(value):
        return True
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(
        movable(element, depth + 1) for element in value[:_LOOKED_AT]
    )


def inputs(value: Any) -> bool:
    """Return whether `value` can be passed as model inputs: a tensor, or a container of tensors."""
    held = list(value.values()) if isinstance(value, Mapping) else value
    return tensor(value) or (isinstance(held, list | tuple) and any(map(tensor, held[:_LOOKED_AT])))


def mapping(value: Any) -> bool:
    """Return whether `value` is a dict."""
    return isinstance(value, Mapping)


def function(value: Any) -> bool:
    """Return whether `value` is callable."""
    return callable(value)


def measurement(value: Any) -> bool:
    """Return whether `value` is a result that `hpu_magic.advise` can use."""
    return type(value).__name__ in ("FitResult", "LedgerReport")


def lightning(value: Any, name: str) -> bool:
    """Return whether `value` is an instance of Lightning's class `name`, such as ``Trainer``."""
    from hpu_magic.lightning.names import NAMESPACES

    return any(_is_a(value, namespace, name) for namespace in NAMESPACES)


def lightning_model(value: Any) -> bool:
    """Return whether `value` is a ``LightningModule``."""
    return lightning(value, "LightningModule")


def trainer(value: Any) -> bool:
    """Return whether `value` is a Trainer from Lightning or transformers."""
    from hpu_magic.huggingface.names import is_trainer

    return lightning(value, "Trainer") or is_trainer(value)


def data(value: Any) -> bool:
    """Return whether `value` can be a fit's data: one loader, two loaders, or a data module."""
    if lightning(value, "LightningDataModule"):
        return True
    loaders = value if isinstance(value, tuple) and len(value) == 2 else (value,)
    return all(_is_a(loader, "torch.utils.data", "DataLoader") for loader in loaders)
