"""The base class of all errors that hpu_magic raises for a request, and helpers for their texts."""

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
"""Usual names of number types and cards, and the names that commands use."""


class HPUError(ValueError):
    """A request that cannot be carried out; the text names the wrong value and the fix.

    Nothing has changed when it is raised.
    """


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x' or 'y'?`` for the names close to `word`, else an empty string."""
    import difflib  # here, because only errors need it

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def choice(value: object, choices: Collection[str]) -> str | None:
    """Return the choice that a value names: ``gaudi2`` for "Gaudi 2", ``bf16`` for a dtype.

    Case, spaces and hyphens are ignored. None if it names none of them.
    """
    plain = _plain(str(value))
    spellings = {_plain(one): one for one in choices}
    return spellings.get(plain) or spellings.get(_OTHER_NAMES.get(plain, ""))


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it, as a traceback shows them."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
