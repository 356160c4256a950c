"""Files with operator names, one a line, that users hand to autocast and to mixed precision."""

from __future__ import annotations

import difflib
import functools
from pathlib import Path

import torch

_DEFAULTS = Path(__file__).parent / "autocast_operators"
# Python's names for operators that PyTorch spells otherwise.
_PYTHON_NAMES = frozenset({"cross_entropy", "iadd", "idiv", "imul", "isub", "itruediv", "truediv"})


class OperatorListError(ValueError):
    """A file is no list of operators; the text names the file, the line and the mend."""


def read(path: str | Path) -> list[str]:
    """Return the names of a file.

    Raises
    ------
    OSError
        It cannot be read.
    OperatorListError
        A line is not one name, or names no operator.
    """
    names = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        name = line.strip()
        if not name:
            continue
        place = f"{path}, line {number}"
        if not name.isidentifier():
            raise OperatorListError(
                f"{place}: {name!r} is not the name of one operator; write one name a line, "
                "such as linear, and nothing else."
            )
        if name not in known():
            raise OperatorListError(f"{place}: there is no operator {name!r}; {_mend(name)}")
        names.append(name)
    return names


@functools.cache
def known() -> frozenset[str]:
    """Return the names that a list may hold: those of PyTorch's operators, and Python's."""
    of_pytorch = (each.partition(".")[0] for each in torch._C._dispatch_get_all_op_names())
    return _PYTHON_NAMES.union(
        defaults("lower_precision"),
        defaults("fp32"),
        defaults("promote"),
        (each.removeprefix("aten::") for each in of_pytorch if each.startswith("aten::")),
    )


def defaults(kind: str) -> list[str]:
    """Return the vendor's own list: ``lower_precision``, ``fp32`` or ``promote``."""
    return (_DEFAULTS / f"{kind}.txt").read_text().split()


def _text(path: str | Path) -> str:
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")  # some editors begin a text with a mark
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise OperatorListError(
            f"{path}, line {line}: this is not text; write the names in plain text, one a line."
        ) from None


def _mend(name: str) -> str:
    close = difflib.get_close_matches(name, sorted(known()), n=3, cutoff=0.6)
    if not close:
        return "use names such as linear, softmax or exp."
    return f"did you mean {' or '.join(map(repr, close))}?"
