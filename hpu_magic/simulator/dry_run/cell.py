"""Runs the cell of a notebook as the main module of this process."""

from __future__ import annotations

import ast
import linecache
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

NAME = "cell"
"""The file name of the cell's code."""


def run(code: str, variables: str | None, path: Sequence[str]) -> None:
    """Run the code in the file `code`, and display its last expression.

    Parameters
    ----------
    code
        Path of the cell's code.
    variables
        Path of the variables, packed by the notebook, or None.
    path
        The notebook's module search path.
    """
    sys.argv = [""]
    sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]
    source = Path(code).read_text()
    # Without a modification time, linecache does not compare this entry with a file.
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if variables is not None:
        vars(main).update(pickle.loads(Path(variables).read_bytes()))
    statements = ast.parse(source, NAME).body
    last = [statements.pop()] if statements and isinstance(statements[-1], ast.Expr) else []
    exec(compile(ast.Module(statements, []), NAME, "exec"), vars(main))
    exec(compile(ast.Interactive(last), NAME, "single"), vars(main))
