"""Read the machine's cards, their memory and the processes that hold them.

Reading does not acquire a card or import torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hpu_magic.backend import is_simulated
from hpu_magic.holders import Holder
from hpu_magic.monitor import allotted, hlml, hlsmi
from hpu_magic.monitor.processes import with_user
from hpu_magic.monitor.reading import UNKNOWN, CardReading, Snapshot

if TYPE_CHECKING:
    from hpu_magic.simulator.cards import CardState

__all__ = ["CardReading", "Holder", "Snapshot", "snapshot"]


def snapshot() -> Snapshot:
    """Read all cards of the machine.

    Real cards are read through HLML, or through ``hl-smi`` if the HLML library or its binding is
    missing. If there are no real cards, the result contains the simulated cards, unless the
    vendor's package is installed. With the vendor's package, the simulator is not used, and
    `reason` explains why the snapshot is empty.
    """
    real = _real()
    if real.cards or not is_simulated():
        return real
    from hpu_magic.simulator import cards

    try:
        states = cards.snapshot()
    except (RuntimeError, ValueError, OSError) as error:
        return Snapshot((), "simulator", str(error))
    return Snapshot(allotted.named(_numbered([_simulated(state) for state in states])), "simulator")


def _simulated(state: CardState) -> CardReading:
    return CardReading(
        index=state.module_id,
        module_id=state.module_id,
        name=state.generation,
        generation=state.generation,
        simulated=True,
        memory_used=None if state.error else state.in_use,
        memory_total=state.capacity,
        holders=() if state.holder is None else (with_user(state.holder),),
        error=state.error,
    )


def _numbered(cards: Sequence[CardReading]) -> tuple[CardReading, ...]:
    """Return the cards sorted by module ID, with unique IDs.

    A card with an unknown module ID, such as a lost card, gets the lowest unused ID.
    """
    taken = {card.module_id for card in cards}
    free = (number for number in itertools.count() if number not in taken)
    numbered = (
        replace(card, module_id=next(free)) if card.module_id == UNKNOWN else card for card in cards
    )
    return tuple(sorted(numbered, key=lambda card: card.module_id))


def _real() -> Snapshot:
    try:
        found, processes = hlml.read()
    except hlml.HlmlUnavailableError as unavailable:
        missing = str(unavailable)
        # An error code means that the driver itself failed, so hl-smi would fail as well.
        if unavailable.code is not None or not hlsmi.installed():
            return Snapshot((), "none", missing)
        try:
            found, processes = hlsmi.read()
        except hlsmi.HlSmiUnavailableError as failed:
            return Snapshot((), "none", f"{missing} {failed}")
        cards = allotted.named(_numbered(found))
        return Snapshot(cards, "hl-smi", _hidden_holders(cards, processes.hidden))
    if not found:
        return Snapshot(
            (),
            "none",
            "The Gaudi driver reports no cards; a container sees only the cards that it was "
            "started with.",
        )
    cards = allotted.named(_numbered(found))
    return Snapshot(cards, "hlml", _hidden_holders(cards, processes.hidden))


def _hidden_holders(cards: tuple[CardReading, ...], hidden: bool) -> str | None:
    """Return a sentence about cards in use whose holders are not visible, or None."""
    used = [card.label for card in cards if not card.holders and card.in_use]
    if not used:
        return None
    *others, last = used
    which = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    if hidden:
        return f"{which} in use by processes of other users, which only root can see."
    return f"{which} in use by processes that are not visible, for example in another container."
