"""The loops that run around a call, out to its cell or script."""

from __future__ import annotations

import dis
import functools
import threading
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

__all__ = ["Loop", "enclosing_loops", "passes_through"]

_OPTIMIZED = 0x1  # a function's code: its variables are not a namespace
_TOKEN = "__hpu_magic_call__"


class Loop(NamedTuple):
    """One loop that runs: the call that it is in, and its part of the call's bytecode."""

    call: object
    code: CodeType
    start: int
    end: int


def enclosing_loops(frame: FrameType | None) -> frozenset[Loop]:
    """Return the loops that a frame and its callers are in, out to the cell or script.

    Another call of the same function is in other loops. None are known in other threads, whose
    callers may loop for ever.
    """
    found: set[Loop] = set()
    if threading.current_thread() is not threading.main_thread():
        return frozenset()
    while frame is not None:
        code = frame.f_code
        found |= {
            Loop(_call(frame), code, start, end)
            for start, end in _loops(code)
            if start <= frame.f_lasti <= end
        }
        if not code.co_flags & _OPTIMIZED:
            break
        frame = frame.f_back
    return frozenset(found)


def passes_through(traceback: TracebackType | None, loops: frozenset[Loop]) -> bool:
    """Return whether an exception was raised in one of the loops."""
    while traceback is not None:
        code, place = traceback.tb_frame.f_code, traceback.tb_lasti
        if any(one.code is code and one.start <= place <= one.end for one in loops):
            return True
        traceback = traceback.tb_next
    return False


@functools.lru_cache(maxsize=64)
def _loops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return from where to where each loop of a code goes: where it jumps back."""
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return tuple(
        (one.argval, one.offset)
        for one in dis.get_instructions(code)
        # Waiting for a coroutine jumps back, too.
        if one.opcode in jumps and one.opname != "JUMP_BACKWARD_NO_INTERRUPT"
        if one.argval <= one.offset
    )


def _call(frame: FrameType) -> object:
    """Return what is equal for one call alone, without keeping its frame and variables alive."""
    if not frame.f_code.co_flags & _OPTIMIZED:
        return id(frame)  # which runs as long as its cell
    variables = frame.f_locals
    token = variables.get(_TOKEN) or object()
    if isinstance(variables, dict):
        variables.clear()  # until Python 3.12 a copy, which would keep tensors alive
    variables[_TOKEN] = token
    return token
