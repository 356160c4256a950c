"""The one exception that says no to a request before anything was changed, and what led to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class HPUError(ValueError):
    """A request that cannot be done; its text names the offending value and the fix."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x' or 'y'?`` for the names close to `word`, else an empty string."""
    import difflib  # here, as it is wanted only when something is wrong

    close = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it, as a traceback shows them."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
