"""What to say when the card is full: what was requested, what is free, and who has the rest."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from hpu_magic import units
from hpu_magic.errors import chain
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.memory import TRACEBACK, held
from hpu_magic.runtime.start import restart

_NAMED = 3
# The vendor's allocator names the bytes; PyTorch's own class stands for all allocators.
_REFUSED = re.compile(r"Allocation failed for size::\s*([0-9]+)")
# The simulator: the card has room, and the machine that simulates it does not.
_HOST = "this machine's own memory does not"


def explain(
    error: BaseException, namespace: Mapping[str, Any], hidden: Mapping[str, Any] | None = None
) -> str | None:
    """Return what a user can do about an error, if it says that the card is full; else None.

    Parameters
    ----------
    error : BaseException
        What a cell ended with.
    namespace : mapping
        The user's variables.
    hidden : mapping, optional
        Names in it that are not the user's.
    """
    errors = list(chain(error))
    refused = next((size for one in errors if (size := _asked(one)) is not None), None)
    if refused is None or not device.taken() or any(_HOST in str(one) for one in errors):
        return None
    try:
        stats = sys.modules["torch"].hpu.memory_stats()
    except RuntimeError:  # a card that was lost has no statistics
        return None
    limit, free = stats["Limit"], max(stats["Limit"] - stats["InUse"], 0)
    if refused > limit:
        return (
            f"The request is larger than the card: {units.size(refused)} were requested, and the "
            f"card has {units.size(limit)}. Request less, for example with a smaller batch."
        )
    asked = f"{units.size(refused)} were requested" if refused else "more was requested"
    # Of what failed halfway through, the results so far are gone by now.
    sentences = [
        f"The card is full: {asked}, and {units.size(free)} of {units.size(limit)} are free now "
        "that the cell has ended."
    ]
    largest = sorted(held(namespace, hidden or {}).items(), key=lambda item: -item[1])[:_NAMED]
    if largest:
        *others, last = (f"{name} ({units.size(size)})" for name, size in largest)
        named = f"variables are {', '.join(others)} and {last}" if others else f"variable is {last}"
        sentences.append(f"The largest {named}.")
    sentences.append(_ways_out([name for name, _ in largest]))
    return " ".join(sentences)


def _asked(error: BaseException) -> int | None:
    """Return the bytes that were refused, 0 where the error does not tell; None for others."""
    if not isinstance(error, RuntimeError):
        return None
    if refused := _REFUSED.search(str(error)):
        return int(refused[1])
    memory_error = getattr(sys.modules.get("torch"), "OutOfMemoryError", None)
    return 0 if memory_error is not None and isinstance(error, memory_error) else None


def _ways_out(largest: list[str]) -> str:
    names = [name for name in largest if name.isidentifier()]
    ways = [f"delete what is not needed (del {names[0]})"] if names else []
    if any(name.startswith("Out[") for name in largest):
        ways.append("forget the results shown so far (%reset -f out)")
    if TRACEBACK in largest:
        ways.append("run another cell that fails, so that this traceback is forgotten")
    ways.append("take a smaller batch or a type of fewer bits")
    if restart.available():
        ways.append("begin anew with %hpu_release --restart")
    *others, last = ways
    text = f"{', '.join(others)}, or {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."
