"""Locate a call: the lines from its cell or script to the call, and the loops that enclose it."""

from __future__ import annotations

import dis
import functools
import threading
from bisect import bisect_left
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

_OPTIMIZED = 0x1  # code flag of functions, which have local variables instead of a namespace
_TOKEN = "__hpu_magic_call__"


class Loop(NamedTuple):
    """A running loop: the function call that runs it, and the bytecode offsets of its body."""

    call: object
    code: CodeType
    start: int
    end: int


class Place(NamedTuple):
    """The location of a call: one line per caller, and the running loops that enclose it."""

    lines: tuple[tuple[CodeType, int], ...]
    loops: frozenset[Loop]


def place_of(frame: FrameType | None) -> Place:
    """Return the location of a frame, following its callers up to the cell or script.

    Loops in different calls of the same function are distinct. Loops are only reported for the main
    thread, because callers in other threads may loop forever.
    """
    lines, loops = [], set()
    while frame is not None:
        code = frame.f_code
        lines.append((code, frame.f_lineno))
        loops |= {
            Loop(_call(frame), code, start, end)
            for start, end in _loops(code)
            if start <= frame.f_lasti <= end
        }
        if not code.co_flags & _OPTIMIZED:
            break
        frame = frame.f_back
    in_main_thread = threading.current_thread() is threading.main_thread()
    return Place(tuple(lines), frozenset(loops if in_main_thread else ()))


def passes_through(traceback: TracebackType | None, loops: frozenset[Loop]) -> bool:
    """Return whether an exception was raised inside one of the loops."""
    while traceback is not None:
        code, place = traceback.tb_frame.f_code, traceback.tb_lasti
        if any(loop.code is code and loop.start <= place <= loop.end for loop in loops):
            return True
        traceback = traceback.tb_next
    return False


@functools.lru_cache(maxsize=64)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return the first and last offset of each loop's body, which ends with a backward jump.

    The body excludes the first instruction of the loop, which fetches the next item in a ``for``
    loop. Therefore, a generator that produces the items, such as tqdm's, does not run inside the
    body.
    """
    instructions = [each for each in dis.get_instructions(code) if each.opname != "EXTENDED_ARG"]
    offsets = [each.offset for each in instructions]
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return tuple(
        (offsets[bisect_left(offsets, each.argval) + 1], each.offset)
        for each in instructions
        # Awaiting a coroutine also uses a backward jump.
        if each.opcode in jumps and each.opname != "JUMP_BACKWARD_NO_INTERRUPT"
        if each.argval < each.offset
    )


def _call(frame: FrameType) -> object:
    """Return an object that identifies a call without keeping its frame and variables alive."""
    if not frame.f_code.co_flags & _OPTIMIZED:
        return id(frame)  # the ID is unique, because the frame exists while its cell is running
    variables = frame.f_locals
    token = variables.get(_TOKEN) or object()
    if isinstance(variables, dict):
        variables.clear()  # up to Python 3.12, this copy would keep tensors alive
    variables[_TOKEN] = token
    return token
