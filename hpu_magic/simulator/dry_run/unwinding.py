"""Ends a function that catches the exception that ends a dry run.

A bare ``except:`` also catches `RunEnded`, for example in a loop that skips failed batches. The
exception is then raised again in a line outside the ``try`` statement, so that the loop ends and
``finally`` blocks still run.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import dropwhile
from types import CodeType, FrameType
from typing import Any

_TRY: tuple[type[Any], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
_MOST_LINES = 100
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def raise_outside(error: BaseException, catcher: CodeType | None) -> None:
    """Raise an error when a function, or one of its callers, leaves its `try` statement.

    `catcher` is the code of the function that caught the error. If that function is not a caller of
    this one, the error is raised now. If the functions stay in their ``try`` statements for too
    many lines, the error is raised anyway, and an outer statement catches it.
    """
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line":
            lines += 1
            catching = _catching_lines(frame.f_code.co_filename)
            if frame.f_lineno not in catching or lines > _MOST_LINES:
                sys.settrace(None)
                raise error
        return trace

    callers = _callers(sys._getframe(1))
    frames = list(dropwhile(lambda each: each.f_code is not catcher, callers))
    if not frames:
        raise error
    for frame in frames:
        frame.f_trace = trace
    # Functions that are called from now on are not traced: they may belong to a `finally` block.
    sys.settrace(lambda *_: None)


def catcher_of(error: BaseException) -> CodeType | None:
    """Return the code of the function that caught an error."""
    passed = error.__traceback__  # starts with the outermost function
    return None if passed is None else passed.tb_frame.f_code


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@cache
def _catching_lines(file: str) -> frozenset[int]:
    """Return the lines in ``finally`` blocks, and in ``try`` blocks that catch everything.

    The rest of a ``finally`` block must run, so it must not raise the error again.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    found: set[int] = set()
    for each in ast.walk(tree):
        if isinstance(each, _TRY):
            if any(_catches_all(handler.type) for handler in each.handlers):
                found |= _lines(each.body)
            found |= _lines(each.finalbody)
    return frozenset(found)


def _catches_all(kind: ast.expr | None) -> bool:
    names = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(each is None or ast.unparse(each).endswith("BaseException") for each in names)


def _lines(body: Iterable[ast.stmt]) -> set[int]:
    """Return the lines of statements, without the bodies of functions that they define."""
    lines: set[int] = set()
    for statement in body:
        lines |= _span(statement)
        for each in ast.walk(statement):
            if isinstance(each, _FUNCTION):
                lines -= _span(each) - {each.lineno}
    return lines


def _span(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
