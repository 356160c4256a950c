"""Edits of a call's arguments."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.rewrite import Rewriter

Argument = ast.expr | ast.keyword


def has(call: ast.Call, name: str | None) -> bool:
    """Tell whether a call has a keyword; None means ``**``."""
    return any(each.arg == name for each in call.keywords)


def starred(call: ast.Call) -> bool:
    """Tell whether a call has positional arguments that nobody can count."""
    return any(isinstance(each, ast.Starred) for each in call.args)


def in_order(call: ast.Call) -> list[Argument]:
    """Return the arguments as they were typed, one behind the other."""
    given: list[Argument] = [*call.args, *call.keywords]
    return sorted(given, key=lambda each: (each.lineno, each.col_offset))


def extent(cell: Rewriter, call: ast.Call, argument: Argument) -> tuple[int, int]:
    """Return where an argument begins and ends, with the parentheses around it."""
    source = cell.source
    start = source.offset(argument.lineno, argument.col_offset)
    end = source.end(argument)
    opening, closing = _opening(cell, call), source.end(call) - 1
    while True:
        before = source.text[opening + 1 : start].rstrip()
        behind = source.text[end:closing].lstrip()
        if not (before.endswith("(") and behind.startswith(")")):
            return start, end
        start = opening + len(before)
        end = closing - len(behind) + 1


def first(cell: Rewriter, call: ast.Call, argument: str) -> None:
    """Put an argument before all others."""
    more = ", " if call.args or call.keywords else ""
    cell.insert(_opening(cell, call) + 1, argument + more)


def last(cell: Rewriter, call: ast.Call, argument: str) -> None:
    """Put an argument behind all others."""
    given = in_order(call)
    if given:
        cell.insert(extent(cell, call, given[-1])[1], f", {argument}")
    else:
        first(cell, call, argument)


def put(cell: Rewriter, call: ast.Call, argument: Argument, text: str) -> None:
    """Put `text` in the place of an argument with its name."""
    cell.edits.append(cell.source.replaced(*extent(cell, call, argument), text))


def leave_out(cell: Rewriter, call: ast.Call, unwanted: Collection[Argument]) -> None:
    """Take arguments out, each with a comma."""
    given, kept = in_order(call), False
    for index, each in enumerate(given):
        if each not in unwanted:
            kept = True
            continue
        start, end = extent(cell, call, each)
        if kept:
            start = extent(cell, call, given[index - 1])[1]
        elif index + 1 < len(given):
            end = extent(cell, call, given[index + 1])[0]
        else:
            end = cell.source.end(call) - 1
        cell.edits.append(cell.source.replaced(start, end, ""))


def as_parameters(cell: Rewriter, call: ast.Call, names: dict[str, str | None]) -> None:
    """Give the arguments the names that the card's function has for them.

    Parameters
    ----------
    cell : Rewriter
    call : ast.Call
    names : dict of str to str or None
        The other function's parameters in their order; None for what the card's has not.
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
    leave_out(cell, call, unwanted)
    cell.children(call, [each for each in in_order(call) if each not in unwanted])


def _opening(cell: Rewriter, call: ast.Call) -> int:
    return cell.source.text.index("(", cell.source.end(call.func))
