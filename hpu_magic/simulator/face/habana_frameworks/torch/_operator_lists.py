"""Read user-provided lists of operator names, one per line, for autocast and mixed precision."""

from __future__ import annotations

import difflib
import functools
from pathlib import Path

import torch

_DEFAULTS = Path(__file__).parent / "autocast_operators"
# Python names of operators that have other names in PyTorch's dispatcher.
_PYTHON_NAMES = frozenset({"cross_entropy", "iadd", "idiv", "imul", "isub", "itruediv", "truediv"})


class OperatorListError(ValueError):
    """Raised if a file is not an operator list; the message says which line to fix, and how."""


def read(path: str | Path) -> list[str]:
    """Return the operator names listed in a file.

    Raises OSError if the file cannot be read, and OperatorListError if a line is not an operator
    name.
    """
    names = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        name = line.strip()
        if not name:
            continue
        place = f"{path}, line {number}"
        if not name.isidentifier():
            raise OperatorListError(
                f"{place}: {name!r} is not an operator name; write one name per line, such as "
                "linear, without any other text."
            )
        if name not in known():
            raise OperatorListError(f"{place}: operator {name!r} does not exist; {_fix(name)}")
        names.append(name)
    return names


@functools.cache
def known() -> frozenset[str]:
    """Return the valid names: PyTorch's operators and their Python names."""
    of_pytorch = (each.partition(".")[0] for each in torch._C._dispatch_get_all_op_names())
    return _PYTHON_NAMES.union(
        defaults("lower_precision"),
        defaults("fp32"),
        defaults("promote"),
        (each.removeprefix("aten::") for each in of_pytorch if each.startswith("aten::")),
    )


def defaults(kind: str) -> list[str]:
    """Return the vendor's default list of the given kind: lower_precision, fp32 or promote."""
    return (_DEFAULTS / f"{kind}.txt").read_text().split()


def _text(path: str | Path) -> str:
    raw = Path(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")  # some editors add a byte order mark
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise OperatorListError(
            f"{path}, line {line} is not UTF-8 text; write the names as plain text, one per line."
        ) from None


def _fix(name: str) -> str:
    close = difflib.get_close_matches(name, sorted(known()), n=3, cutoff=0.6)
    if not close:
        return "use names such as linear, softmax or exp."
    return f"did you mean {' or '.join(map(repr, close))}?"
