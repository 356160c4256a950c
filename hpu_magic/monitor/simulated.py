"""Simulated cards, through the pages that their driver keeps."""

from __future__ import annotations

from hpu_magic.monitor.processes import user
from hpu_magic.monitor.reading import CardReading, Holder
from hpu_magic.simulator import cards


def read() -> tuple[CardReading, ...]:
    """Read all simulated cards without acquiring any.

    Raises
    ------
    RuntimeError, ValueError
        The cards' directory or an environment variable is not as it may be;
        the text is one sentence for the user.
    """
    return tuple(_reading(state) for state in cards.snapshot())


def _reading(state: cards.CardState) -> CardReading:
    holders: tuple[Holder, ...] = ()
    if state.holder:
        held = state.holder
        named = user(held.pid) if held.pid else None
        holders = (Holder(held.pid, held.command, named, held.idle, held.fit),)
    return CardReading(
        index=state.module_id,
        module_id=state.module_id,
        name=state.generation,
        generation=state.generation,
        simulated=True,
        memory_used=None if state.error else state.in_use,
        memory_total=state.capacity,
        holders=holders,
        error=state.error,
    )
