"""Convert imports."""

from __future__ import annotations

import ast

from hpu_magic.runtime.porting.cell import Cell
from hpu_magic.runtime.porting.findings import MISSING, REMARK
from hpu_magic.runtime.porting.source import Edit
from hpu_magic.runtime.porting.tables import CUDA, counterpart, gpu_package

_CAUGHT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")


def plain(cell: Cell, node: ast.Import) -> None:
    """Add findings about packages that need a GPU; imports of torch modules are left unchanged."""
    for alias in node.names:
        _package(cell, node, alias.name)


def of_names(cell: Cell, node: ast.ImportFrom) -> None:
    """Convert imports from torch.cuda."""
    module = node.module or ""
    if node.level:
        return
    for alias in node.names:
        _package(cell, node, f"{module}.{alias.name}")
    if module != CUDA and not module.startswith(f"{CUDA}."):
        return
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        known = counterpart(f"{module}.{alias.name}")
        if known is None or known.action != "name":
            # The name is a module in torch.cuda, or has no counterpart, which is reported where the
            # name is used.
            groups.setdefault(module, []).append(_written(alias.name, alias.asname))
            if alias.name == "*":
                text = f"names imported with * from {module} are not ported: import them explicitly"
                cell.note(node, REMARK, text)
            continue
        owner, _, name = known.text.rpartition(".")
        bound = alias.asname or alias.name
        groups.setdefault(owner, []).append(_written(name, bound if bound != name else None))
    if set(groups) != {module} and cell.typed(node):
        _replace(cell, node, [(owner, ", ".join(names)) for owner, names in groups.items()])


def _replace(cell: Cell, node: ast.ImportFrom, groups: list[tuple[str, str]]) -> None:
    """Replace an import; the executed form keeps the same number of lines."""
    start, end = cell.source.start(node), cell.source.end(node)
    shown = [f"from {owner} import {names}" for owner, names in groups]
    executed = shown
    if lost := "\n" * cell.source.text.count("\n", start, end):
        owner, names = groups[-1]
        executed = [*shown[:-1], f"from {owner} import ({names}{lost})"]
    cell.edits.append(Edit(start, end, "; ".join(shown), "; ".join(executed)))


def _written(name: str, asname: str | None) -> str:
    return f"{name} as {asname}" if asname else name


def _package(cell: Cell, node: ast.stmt, name: str) -> None:
    package = gpu_package(name)
    if package is None:
        return
    kind = REMARK if _guarded(cell, node) else MISSING
    cell.note(node, kind, f"{package[0]} needs a GPU: {package[1]}")


def _guarded(cell: Cell, node: ast.stmt) -> bool:
    """Return whether the cell handles a failed import."""
    for around in cell.within(ast.Try):
        if node.lineno <= (around.body[-1].end_lineno or 0) and any(
            handler.type is None or _catches(handler.type) for handler in around.handlers
        ):
            return True
    calls = (
        item.context_expr
        for around in cell.within(ast.With)
        for item in around.items
        if isinstance(item.context_expr, ast.Call)
    )
    return any(
        cell.bindings.dotted(call.func) == "contextlib.suppress" and any(map(_catches, call.args))
        for call in calls
    )


def _catches(kind: ast.expr) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_catches, kind.elts))
    return isinstance(kind, ast.Name) and kind.id in _CAUGHT
