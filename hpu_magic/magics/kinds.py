"""Predicates for the kind of a variable, which import nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_DEEPEST = 4
_LOOKED_AT = 100  # elements of a container


def module(value: Any) -> bool:
    """Return whether `value` is a ``torch.nn.Module``."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def tensor(value: Any) -> bool:
    """Return whether `value` is a ``torch.Tensor``."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def optimizer(value: Any) -> bool:
    """Return whether `value` is a ``torch.optim.Optimizer``."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def movable(value: Any, depth: int = 0) -> bool:
    """Return whether `value` is a module, tensor, optimizer, pipeline, or a container of them."""
    from hpu_magic.runtime.device import pipelines

    torch = sys.modules.get("torch")
    if torch is None or depth > _DEEPEST:
        return False
    if isinstance(value, torch.nn.Module | torch.Tensor | torch.optim.Optimizer):
        return True
    if pipelines.is_pipeline(value):
        return True
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(
        movable(one, depth + 1) for one in value[:_LOOKED_AT]
    )


def inputs(value: Any) -> bool:
    """Return whether `value` can be the inputs of a model: tensors, alone or in a container."""
    held = list(value.values()) if isinstance(value, Mapping) else value
    return tensor(value) or (isinstance(held, list | tuple) and any(map(tensor, held[:_LOOKED_AT])))


def function(value: Any) -> bool:
    """Return whether `value` is callable."""
    return callable(value)


def measurement(value: Any) -> bool:
    """Return whether `value` is a result that `hpu_magic.advise` can use."""
    return type(value).__name__ in ("FitResult", "LedgerReport")


def lightning(value: Any, name: str) -> bool:
    """Return whether `value` is an instance of a class of Lightning, such as ``Trainer``."""
    from hpu_magic.lightning.names import loaded_namespaces

    classes = (getattr(sys.modules[one], name, None) for one in loaded_namespaces())
    return any(isinstance(value, one) for one in classes if one is not None)


def lightning_model(value: Any) -> bool:
    """Return whether `value` is a ``LightningModule``."""
    return lightning(value, "LightningModule")


def trainer(value: Any) -> bool:
    """Return whether `value` is a Trainer, of Lightning or of transformers."""
    from hpu_magic.huggingface.names import is_trainer

    return lightning(value, "Trainer") or is_trainer(value)


def data(value: Any) -> bool:
    """Return whether `value` can be a fit's data: a loader, a data module, or a pair of loaders."""
    if lightning(value, "LightningDataModule"):
        return True
    loaders = value if isinstance(value, tuple) and len(value) == 2 else (value,)
    loader = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
    return loader is not None and all(isinstance(one, loader) for one in loaders)
