"""Under which names Lightning is imported; loads none of them."""

from __future__ import annotations

import sys

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")


def loaded_namespaces() -> list[str]:
    """Return the Lightning namespaces that are imported in this process."""
    return [name for name in NAMESPACES if name in sys.modules]
