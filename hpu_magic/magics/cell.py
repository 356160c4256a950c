"""Run the cell of a cell magic in the same way as an ordinary cell.

If a cell begins with one of our cell magics, it is not passed to the magic as text. Instead,
IPython runs it like any other cell, inside a ``with`` statement that enters the magic's context::

    %%hpu_autocast --dtype bf16          with entered("hpu_autocast", "--dtype bf16"):
    loss = step()                  ->        loss = step()
    loss                                     show(loss)

This is done by two transformers. The input transformer replaces the first line with a marker and
keeps the other lines. IPython therefore still handles other magics, ``!commands`` and ``await``,
and the line numbers do not change. The AST transformer then replaces the marker with the ``with``
statement. The code runs in IPython's frame, so tracebacks, interrupts, ``await`` and ``Out`` work
without extra code.

The value of the last expression is displayed after the context has exited, so that printing a
tensor does not run under autocast and is not timed.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import re
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import cell_magic

from hpu_magic.errors import HPUError
from hpu_magic.magics.place import running_cell

Factory = Callable[..., AbstractContextManager[Any]]
Rewrite = Callable[[str, str], tuple[str, str]]

_HERE = f"__import__({__name__!r}, fromlist=['under'])"
_FIRST_LINE = re.compile(r"%%(\w+)(?:[ \t]+(.*?))?[ \t]*\r?\n?$")
_ASSIGNMENTS = (ast.AugAssign, ast.AnnAssign)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class _CellMagic(NamedTuple):
    factory: Factory
    repeats: bool
    rewrite: Rewrite | None


_magics: dict[str, _CellMagic] = {}
_running = threading.local()


def offer(
    name: str, factory: Factory, *, repeats: bool = False, rewrite: Rewrite | None = None
) -> None:
    """Make ``%%name ARGUMENTS`` run its cell inside ``factory(ARGUMENTS)``.

    Parameters
    ----------
    name : str
        Name of the magic. The magic must also be registered with IPython, which then lists it and
        shows its help.
    factory : callable
        Called with the rest of the first line; returns a context manager. If `factory` raises
        `UsageError` or `HPUError`, the cell does not run. If the context manager has a
        ``summary()`` method, its return value is displayed below the cell's own output, even if the
        cell raised an error. A return value of None is not displayed.
    repeats : bool
        Whether the cell runs repeatedly for as long as ``context.again()`` returns True. Only the
        last run displays the value of the last expression, below the report, as in ``%%time``.
    rewrite : callable, optional
        Called with the rest of the first line and the cell's other lines. Returns the statements to
        run first, and the lines to run instead of the cell's lines: either the same number of
        lines, so that line numbers do not change, or no lines. The original lines are also passed
        to `factory`.
    """
    _magics[name] = _CellMagic(factory, repeats, rewrite)


def is_offered(line: str) -> bool:
    """Return whether a line starts a cell with a magic that was passed to `offer`."""
    found = _FIRST_LINE.match(line)
    return found is not None and found[1] in _magics


def enable(shell: Any) -> None:
    """Install both transformers in an `InteractiveShell`, unless they are already installed."""
    if plain_cell not in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.append(plain_cell)
    if not any(isinstance(one, _Wrapper) for one in shell.ast_transformers):
        # Insert this transformer first, so that others see the user's code inside the ``with``
        # block.
        shell.ast_transformers.insert(0, _Wrapper(shell))


def disable(shell: Any) -> None:
    """Remove both transformers."""
    if plain_cell in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(plain_cell)
    shell.ast_transformers[:] = [
        one for one in shell.ast_transformers if not isinstance(one, _Wrapper)
    ]
    _magics.clear()


def plain_cell(lines: list[str]) -> list[str]:
    """Replace a first line ``%%name arguments`` with the marker; leave other cells unchanged."""
    found = _FIRST_LINE.match(lines[0]) if lines else None
    if found is None or found[1] not in _magics or not "".join(lines[1:]).strip():
        return lines
    arguments, body, before = [found[1], found[2] or ""], lines[1:], ""
    rewrite = _magics[found[1]].rewrite
    if rewrite is not None:
        typed = "".join(body)
        before, rewritten = rewrite(arguments[1], typed)
        arguments.append(typed)
        body = rewritten.splitlines(keepends=True)
    body = plain_cell(body)
    if body and body[0].startswith("%%"):
        body = cell_magic(body)
    if before and body and body[0].startswith(_HERE):
        # Another magic's marker must remain the first statement after this marker.
        body, before = [f"{body[0].rstrip()}; {before}\n", *body[1:]], ""
    called = ", ".join(map(repr, arguments))
    return [f"{_HERE}.under({called}){before and f'; {before}'}\n", *body]


# While the user is typing a cell in a terminal, IPython must still see a cell magic, which ends
# with an empty line, instead of a complete one-line statement.
plain_cell.has_side_effects = True  # type: ignore[attr-defined]


def under(name: str, line: str, typed: str = "") -> None:
    """Raise an error; the marker runs only if a magic bypasses AST transformers."""
    raise UsageError(
        f"%%{name} {line} was not applied, because the magic above it compiles the cell itself: "
        f"put %%{name} on the first line."
    )


class _Wrapper:
    """The AST transformer."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def visit(self, module: ast.AST) -> ast.AST:
        if isinstance(module, ast.Module) and module.body:
            marker = _marker(module.body[0])
            if marker is not None:
                invalid = _invalid(module.body)
                module.body = [invalid] if invalid else self._wrapped(marker, module.body)
        return module

    def _wrapped(self, marker: tuple[str, ...], statements: list[ast.stmt]) -> list[ast.stmt]:
        position, body = statements[0], statements[1:]
        inner = _marker(body[0]) if body else None
        futures: list[ast.stmt] = []
        if inner is not None:
            body = self._wrapped(inner, body)
            futures = [body.pop(0) for one in list(body) if _is_future(one)]
        else:
            futures = [body.pop(0) for one in list(body) if _is_future(one)]
            body = _displayed(body, self._shell.ast_node_interactivity)
        return [*futures, _with(marker, body or [ast.Pass()], position)]


def _with(marker: tuple[str, ...], body: list[ast.stmt], position: ast.stmt) -> ast.stmt:
    source = f"with {_HERE}.entered({', '.join(map(repr, marker))}):\n"
    source += f" while {_HERE}.again():\n  pass" if _magics[marker[0]].repeats else " pass"
    statement = ast.parse(source).body[0]
    assert isinstance(statement, ast.With)
    for node in ast.walk(statement):
        ast.copy_location(node, position)
    innermost = statement.body[0] if isinstance(statement.body[0], ast.While) else statement
    innermost.body = body
    return statement


def _marker(statement: ast.stmt) -> tuple[str, ...] | None:
    """Return the name and arguments of the magic if the statement is a marker, else None."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "under"
        and ast.unparse(call.func.value) == _HERE
    ):
        arguments = tuple(str(each.value) for each in call.args if isinstance(each, ast.Constant))
        if arguments[0] in _magics:
            return arguments
    return None


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _invalid(body: list[ast.stmt]) -> ast.stmt | None:
    """Return the first statement that parses but cannot be compiled, such as a stray ``break``.

    Python might accept such a statement inside ``with`` or ``while``; on its own, it raises the
    usual error.
    """
    for statement in body:
        try:
            module = ast.Module([statement], [])
            compile(module, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError):
            return statement
    return None


def _displayed(body: list[ast.stmt], interactivity: str) -> list[ast.stmt]:
    """Pass the values that a plain cell would display to `show`.

    ``InteractiveShell.ast_node_interactivity`` determines which values these are.
    """
    if not body or interactivity == "none":
        return body
    if interactivity == "all":
        return [_ShowNested().visit(statement) for statement in body]
    last = body[-1]
    if interactivity == "last_expr_or_assign":
        name = _assigned_name(last)
        if name is not None:
            value = ast.copy_location(ast.Name(name, ast.Load()), last)
            return [*body, ast.copy_location(ast.Expr(_shown(value)), last)]
    if isinstance(last, ast.Expr):
        last.value = _shown(last.value)
    elif interactivity == "last":
        body[-1] = _ShowNested().visit(last)
    return body


def _assigned_name(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, _ASSIGNMENTS):
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


def _shown(value: ast.expr) -> ast.expr:
    call = ast.parse(f"{_HERE}.show()", mode="eval").body
    assert isinstance(call, ast.Call)
    for node in ast.walk(call):
        ast.copy_location(node, value)
    call.args = [value]
    return call


class _ShowNested(ast.NodeTransformer):
    """Show the values of expressions inside a compound statement, except those in inner scopes."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _SCOPES):
            return node
        if isinstance(node, ast.Expr):
            node.value = _shown(node.value)
            return node
        return self.generic_visit(node)


class _Entered:
    """The context in which a magic runs its cell, and the values to display afterwards."""

    def __init__(self, context: AbstractContextManager[Any], repeats: bool) -> None:
        self.context = context
        self.repeats = repeats
        self.values: list[Any] = []

    def __enter__(self) -> None:
        with _usage_errors():
            self.context.__enter__()
        _stack().append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _stack().remove(self)
        try:
            with _usage_errors():
                self.context.__exit__(kind, error, traceback)
            if self.repeats:
                self._report()
            if kind is None:
                for value in self.values:
                    sys.displayhook(value)
        finally:
            self.values.clear()
            if not self.repeats:  # `%%hpu_memory` also measures the displayed value
                self._report()

    def _report(self) -> None:
        from IPython.display import display

        summary = getattr(self.context, "summary", None)
        if summary is not None and (report := summary()) is not None:
            display(report)


def entered(name: str, line: str, *typed: str) -> _Entered:
    """Return the context for running a cell under ``%%name line``; called by the cell.

    A rewritten cell also passes its original lines.
    """
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    frame = sys._getframe(1)
    _show_as_typed(frame, f"%%{name} {line}")
    # $name and {expression} refer to the variables of the calling frame, which is the cell's.
    expanded = shell.var_expand(line, 1) if shell is not None else line
    with _usage_errors():
        magic = _magics[name]
        return _Entered(magic.factory(expanded, *typed), magic.repeats)


def _show_as_typed(frame: FrameType, line: str) -> None:
    """Make tracebacks show the first line of the cell as the user typed it.

    The line becomes a comment, because the code that formats tracebacks also parses source lines.
    """
    cached = linecache.cache.get(frame.f_code.co_filename, ())
    lines = cached[2] if len(cached) == 4 else []
    if len(lines) >= frame.f_lineno and lines[frame.f_lineno - 1].startswith(_HERE):
        lines[frame.f_lineno - 1] = f"# {line}".rstrip() + "\n"


def again() -> bool:
    """Return whether the innermost repeated cell should run again; called by the cell."""
    current = _stack()[-1]
    with _usage_errors():
        more = current.context.again()  # type: ignore[attr-defined]
    if more:
        current.values.clear()
    return more


def show(value: Any) -> None:
    """Store `value` to display it at the end of the innermost cell; called by the cell."""
    _stack()[-1].values.append(value)


def run(shell: Any, name: str, line: str, cell: str) -> None:
    """Run `cell` under ``%%name line`` if code calls the magic.

    Raises
    ------
    UsageError
        The cell contains a top-level ``await``, which works only in cells that IPython runs.
    """
    # The line may contain line breaks from variables that IPython has expanded.
    source = shell.transform_cell(f"%%{name} {' '.join(line.splitlines())}\n{cell}")
    __tracebackhide__ = True  # IPython omits this frame
    filename = shell.compile.cache(source, running_cell(shell) or 0)
    module = shell.transform_ast(shell.compile.ast_parse(source, filename=filename))
    for statement in module.body:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        with shell.builtin_trap, shell.compile.extra_flags(flags):
            code = shell.compile(ast.Module([statement], []), filename, "exec")
            if code.co_flags & inspect.CO_COROUTINE:
                raise UsageError(
                    f"%%{name} does not support await if code calls it: run it as a cell."
                )
            exec(code, shell.user_global_ns, shell.user_ns)


def _stack() -> list[_Entered]:
    if not hasattr(_running, "stack"):
        _running.stack = []
    return _running.stack


@contextlib.contextmanager
def _usage_errors() -> Any:
    try:
        yield
    except HPUError as refused:
        raise UsageError(str(refused)) from None
