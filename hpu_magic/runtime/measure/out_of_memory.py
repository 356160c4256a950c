"""Explain errors that occur because the card is out of memory."""

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
_SMALLEST_NAMED = 0.001  # a fraction of the card's memory
# The vendor's allocator reports the requested size. Other allocators raise PyTorch's
# OutOfMemoryError.
_REFUSED = re.compile(r"Allocation failed for size::\s*([0-9]+)")
# This error means that the simulated card has free memory, but the host machine does not.
_HOST = "but this machine does not"


def explain(
    error: BaseException, namespace: Mapping[str, Any], hidden: Mapping[str, Any] | None = None
) -> str | None:
    """Return advice if an error means that the card is out of memory, or None otherwise.

    ``namespace`` contains the user's variables. ``hidden`` contains the names in ``namespace`` that
    do not belong to the user.
    """
    errors = list(chain(error))
    requested = next((size for each in errors if (size := _requested(each)) is not None), None)
    if requested is None or any(_HOST in str(each) for each in errors):
        return None
    try:
        memory = device.memory()
    except RuntimeError:  # the card was lost
        return None
    if memory is None:
        return None
    if requested > memory.limit:
        return (
            f"The requested allocation is larger than the card's memory: {units.size(requested)} "
            f"were requested, but the card has {units.size(memory.limit)}. Allocate less, for "
            f"example by using a smaller batch."
        )
    request = f"{units.size(requested)} were requested" if requested else "more was requested"
    # Intermediate results of the failed cell have already been freed.
    free = max(memory.limit - memory.in_use, 0)
    left = f"{units.size(free)} of {units.size(memory.limit)} are free"
    sentences = [f"The card is out of memory: {request}, and {left} now that the cell has ended."]
    if 0 < requested <= free:
        sentences = [f"The card ran out of memory: {request}. Now that the cell has ended, {left}."]
    holders = held(namespace, hidden or {}).items()
    large = [item for item in holders if item[1] >= memory.limit * _SMALLEST_NAMED]
    largest = sorted(large, key=lambda item: -item[1])[:_NAMED]
    if largest:
        *others, last = (f"{name} ({units.size(size)})" for name, size in largest)
        named = f"variables are {', '.join(others)} and {last}" if others else f"variable is {last}"
        sentences.append(f"The largest {named}.")
    sentences.append(_advice([name for name, _ in largest]))
    return " ".join(sentences)


def _requested(error: BaseException) -> int | None:
    """Return the requested size in bytes, 0 if it is unknown, or None for other errors."""
    if not isinstance(error, RuntimeError):
        return None
    if match := _REFUSED.search(str(error)):
        return int(match[1])
    memory_error = getattr(sys.modules.get("torch"), "OutOfMemoryError", None)
    return 0 if memory_error is not None and isinstance(error, memory_error) else None


def _advice(largest: list[str]) -> str:
    names = [name for name in largest if name.isidentifier()]
    advice = [f"delete unused variables (del {names[0]})"] if names else []
    if any(name.startswith("Out[") for name in largest):
        advice.append("delete earlier cell outputs (%reset -f out)")
    if TRACEBACK in largest:
        advice.append("run another cell that fails, to replace this traceback")
    advice.append("use a smaller batch or a smaller dtype")
    if restart.available():
        advice.append("restart with %hpu_restart")
    *others, last = advice
    text = f"{', '.join(others)}, or {last}" if others else last
    return f"{text[0].upper()}{text[1:]}."
