"""Resolve the names in a cell to dotted names, using its imports and the notebook's variables."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any


class Bindings:
    """Resolves the names in a cell, using its imports and the notebook's variables."""

    def __init__(self, tree: ast.Module, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self.imported: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.imported[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def dotted(self, node: ast.AST) -> str | None:
        """Return the full name of an expression such as ``torch.cuda.Event``, or None."""
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else None
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.imported:
            return self.imported[node.id]
        if node.id in self._variables:
            return _name(self._variables[node.id])
        return node.id if node.id == "torch" else None

    def variable(self, name: str) -> Any:
        """Return the notebook's variable, or None if it does not exist or the cell imports it."""
        return None if name in self.imported else self._variables.get(name)

    def knows(self, name: str) -> bool:
        """Return whether the cell imports a name or the notebook has a variable with this name."""
        return name in self.imported or name in self._variables


def _name(value: Any) -> str | None:
    if isinstance(value, ModuleType):
        return value.__name__
    if not (isinstance(value, type) or inspect.isroutine(value)):
        return None
    module = str(getattr(value, "__module__", None))
    return f"{module}.{value.__qualname__}" if module.partition(".")[0] == "torch" else None
