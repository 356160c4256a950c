"""Imports of a cell that is ported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from hpu_magic.runtime.porting.findings import MISSING, REMARK
from hpu_magic.runtime.porting.tables import CUDA, counterpart, gpu_package

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.rewrite import Rewriter


def plain(cell: Rewriter, node: ast.Import) -> None:
    """Tell of packages that need a GPU; modules of torch may stay."""
    for alias in node.names:
        _package(cell, node, alias.name)


def of_names(cell: Rewriter, node: ast.ImportFrom) -> None:
    """Import from where the card has it what is imported from torch.cuda."""
    module = node.module or ""
    if node.level:
        return
    for alias in node.names:
        _package(cell, node, f"{module}.{alias.name}")
    if module != CUDA and not module.startswith(f"{CUDA}."):
        return
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        found = counterpart(f"{module}.{alias.name}")
        if found is None or found.action != "name":
            # A module of torch.cuda, or what has no counterpart: where it is used, it is told.
            groups.setdefault(module, []).append(_written(alias.name, alias.asname))
            continue
        owner, _, name = found.text.rpartition(".")
        wanted = alias.asname or alias.name
        groups.setdefault(owner, []).append(_written(name, wanted if wanted != name else None))
    text = "; ".join(f"from {owner} import {', '.join(names)}" for owner, names in groups.items())
    if set(groups) != {module}:
        cell.replace(node, text)


def _written(name: str, asname: str | None) -> str:
    return f"{name} as {asname}" if asname else name


def _package(cell: Rewriter, node: ast.stmt, name: str) -> None:
    package = gpu_package(name)
    if package is None:
        return
    guarded = any(
        isinstance(handler.type, ast.Name)
        and handler.type.id in ("ImportError", "ModuleNotFoundError", "Exception")
        for around in cell.within(ast.Try)
        for handler in around.handlers
    )
    kind = REMARK if guarded else MISSING
    cell.note(node, kind, f"{package[0]} needs a GPU: {package[1]}")
