"""The lines that porting adds: the import, and the step marks for lazy mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hpu_magic.runtime.porting.bindings import Bindings

IMPORT = "import habana_frameworks.torch.core as htcore"
MARK = "htcore.mark_step()"


def steps(tree: ast.Module, bindings: Bindings) -> Iterator[ast.stmt]:
    """Yield the statements that must be followed by a step mark in lazy mode.

    The statements are backward passes and optimizer steps. A step mark executes the recorded
    operations.
    """
    optimizers = _optimizers(tree)
    for block in _blocks(tree):
        for statement, following in zip(block, [*block[1:], None], strict=True):
            if _ends_step(statement, optimizers, bindings) and not _marks(following):
                yield statement


def torch_import(tree: ast.Module) -> ast.stmt | None:
    """Return the first statement at the cell's top level that imports from torch."""
    for statement in tree.body:
        names: list[str] = []
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            names = [statement.module or ""]
        if any(name.partition(".")[0] == "torch" for name in names):
            return statement
    return None


def preamble(tree: ast.Module) -> ast.stmt | None:
    """Return the last statement that must come first: a docstring or a ``__future__`` import."""
    last = None
    for index, statement in enumerate(tree.body):
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if future or (index == 0 and text):
            last = statement
    return last


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _ends_step(statement: ast.stmt, optimizers: set[str], bindings: Bindings) -> bool:
    call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return False
    if call.func.attr == "backward":
        return True
    if call.func.attr != "step":
        return False
    # optimizer.step() or scaler.step(optimizer)
    return any(
        _is_optimizer(each, optimizers, bindings) for each in (call.func.value, *call.args[:1])
    )


def _is_optimizer(node: ast.expr, optimizers: set[str], bindings: Bindings) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    if name in optimizers or name.lower().startswith("optim") or name.lower() == "opt":
        return True
    kinds = type(bindings.variable(name)).__mro__ if isinstance(node, ast.Name) else ()
    return any(f"{kind.__module__}.{kind.__name__}" == _BASE for kind in kinds)


_BASE = "torch.optim.optimizer.Optimizer"


def _optimizers(tree: ast.Module) -> set[str]:
    """Return the names that are assigned results of calls to ``torch.optim``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = ast.unparse(node.value.func)
            if "optim." in function and "lr_scheduler" not in function:
                names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
                names |= {each.attr for each in node.targets if isinstance(each, ast.Attribute)}
    return names


def _marks(statement: ast.stmt | None) -> bool:
    return statement is not None and ast.unparse(statement).endswith("mark_step()")
