"""The base class of errors that are caused by user requests, and helpers for messages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

_OTHER_NAMES = {
    **dict.fromkeys(("bfloat16", "torchbfloat16"), "bf16"),
    **dict.fromkeys(("float16", "torchfloat16", "half"), "fp16"),
    **dict.fromkeys(("float32", "torchfloat32", "float", "32"), "fp32"),
    **dict.fromkeys(("gaudi1", "g1"), "gaudi"),
    "g2": "gaudi2",
    "g3": "gaudi3",
}
"""Common names of dtypes and cards, mapped to the names that commands use."""


class HPUError(ValueError):
    """A request that cannot be executed; the message contains the invalid value and the fix.

    No state has been changed when it is raised.
    """


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x' or 'y'?`` for names similar to `word`, else an empty string."""
    import difflib  # imported here because only errors need this module

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def failed_to_write(message: str) -> bool:
    """Return whether an error is PyTorch's error about a file that cannot be written."""
    return _NOT_WRITTEN.search(message) is not None


_NOT_WRITTEN = re.compile(r"iostream error|PytorchStreamWriter failed|unexpected pos \d+ vs \d+")


def choice(value: object, choices: Collection[str]) -> str | None:
    """Return the choice for a value, such as ``gaudi2`` for "Gaudi 2" or ``bf16`` for a dtype.

    Case, spaces and hyphens are ignored. Return None if no choice matches.
    """
    plain = _plain(str(value))
    spellings = {_plain(name): name for name in choices}
    return spellings.get(plain) or spellings.get(_OTHER_NAMES.get(plain, ""))


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its chain of causes, as in a traceback."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        suppressed = current.__suppress_context__
        current = current.__cause__ or (None if suppressed else current.__context__)
