"""Edit the arguments of a call."""

from __future__ import annotations

import ast
from collections.abc import Collection

from hpu_magic.runtime.porting.cell import Cell

Argument = ast.expr | ast.keyword


def has(call: ast.Call, name: str | None) -> bool:
    """Return whether a call has a keyword argument with this name; None stands for ``**``."""
    return any(each.arg == name for each in call.keywords)


def starred(call: ast.Call) -> bool:
    """Return whether a call has an unknown number of positional arguments (``*``)."""
    return any(isinstance(each, ast.Starred) for each in call.args)


def in_order(call: ast.Call) -> list[Argument]:
    """Return the arguments in source order."""
    arguments: list[Argument] = [*call.args, *call.keywords]
    return sorted(arguments, key=lambda each: (each.lineno, each.col_offset))


def extent(cell: Cell, call: ast.Call, argument: Argument) -> tuple[int, int]:
    """Return the start and end of an argument, including any parentheses around it."""
    source = cell.source
    start = source.offset(argument.lineno, argument.col_offset)
    end = source.end(argument)
    opening, closing = _opening(cell, call), source.end(call) - 1
    while True:
        before = source.text[opening + 1 : start].rstrip()
        after = source.text[end:closing].lstrip()
        if not (before.endswith("(") and after.startswith(")")):
            return start, end
        start = opening + len(before)
        end = closing - len(after) + 1


def first(cell: Cell, call: ast.Call, argument: str) -> None:
    """Insert an argument before all others."""
    more = ", " if call.args or call.keywords else ""
    cell.insert(_opening(cell, call) + 1, argument + more)


def last(cell: Cell, call: ast.Call, argument: str) -> None:
    """Append an argument after all others."""
    others = in_order(call)
    if others:
        cell.insert(extent(cell, call, others[-1])[1], f", {argument}")
    else:
        first(cell, call, argument)


def put(cell: Cell, call: ast.Call, argument: Argument, text: str) -> None:
    """Replace an argument, including its name, with `text`."""
    cell.edits.append(cell.source.replaced(*extent(cell, call, argument), text))


def remove(cell: Cell, call: ast.Call, unwanted: Collection[Argument]) -> None:
    """Remove arguments, along with their commas."""
    ordered, kept = in_order(call), False
    for index, each in enumerate(ordered):
        if each not in unwanted:
            kept = True
            continue
        start, end = extent(cell, call, each)
        if kept:
            start = extent(cell, call, ordered[index - 1])[1]
        elif index + 1 < len(ordered):
            end = extent(cell, call, ordered[index + 1])[0]
        else:
            end = cell.source.end(call) - 1
        cell.edits.append(cell.source.replaced(start, end, ""))


def as_parameters(cell: Cell, call: ast.Call, names: dict[str, str | None]) -> None:
    """Rename arguments to match the parameters of the card's function.

    ``names`` maps the parameters of the CUDA function, in order, to those of the card's function,
    or to None if there is no such parameter.
    """
    order = list(names)
    unwanted: list[Argument] = []
    for index, argument in enumerate(call.args[: len(order)]):
        new = names[order[index]]
        if new is None:
            unwanted.append(argument)
        elif unwanted:
            cell.insert(extent(cell, call, argument)[0], f"{new}=")
    for keyword in call.keywords:
        if keyword.arg is None or (new := names.get(keyword.arg, keyword.arg)) == keyword.arg:
            continue
        if new is None:
            unwanted.append(keyword)
        else:
            start = cell.source.offset(keyword.lineno, keyword.col_offset)
            cell.edits.append(cell.source.replaced(start, start + len(keyword.arg), new))
    remove(cell, call, unwanted)
    cell.children(call, [each for each in in_order(call) if each not in unwanted])


def _opening(cell: Cell, call: ast.Call) -> int:
    return cell.source.text.index("(", cell.source.end(call.func))
