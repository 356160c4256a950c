"""Lightning's import names; this module does not import Lightning."""

from __future__ import annotations

import sys

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
FABRICS = ("lightning.fabric", "lightning_fabric")


def loaded_namespaces(names: tuple[str, ...] = NAMESPACES) -> list[str]:
    """Return the Lightning namespaces that this process has imported."""
    return [name for name in names if name in sys.modules]


def trainer_namespace(value: object) -> str | None:
    """Return the namespace of a Lightning Trainer, or None if `value` is not a Trainer."""
    for name in loaded_namespaces():
        trainer_class = getattr(sys.modules[name], "Trainer", None)
        if trainer_class is not None and isinstance(value, trainer_class):
            return name
    return None
