"""Which cards the machine has, how full they are and who holds them.

Reading acquires no card and loads no torch, so that a server may do it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hpu_magic.backend import is_simulated
from hpu_magic.monitor.reading import UNKNOWN, CardReading, Holder, Snapshot

__all__ = ["CardReading", "Holder", "Snapshot", "snapshot"]


def snapshot() -> Snapshot:
    """Read all cards of the machine.

    Real cards where HLML knows any, or ``hl-smi`` does where HLML's binding or
    library is missing; else the simulated ones, unless the vendor's package is
    installed and the simulator therefore not in use. The snapshot's `reason`
    then says why it is empty.
    """
    real = _real()
    if real.cards or not is_simulated():
        return real
    from hpu_magic.monitor import allotted, simulated

    try:
        return Snapshot(allotted.named(_numbered(simulated.read())), "simulator")
    except (RuntimeError, ValueError, OSError) as refused:
        return Snapshot((), "simulator", str(refused))


def _numbered(cards: Sequence[CardReading]) -> tuple[CardReading, ...]:
    """Return the cards in the order of their module ids, all of which differ.

    A card that does not tell its own, such as a lost one, gets the lowest that no other has.
    """
    taken = {card.module_id for card in cards}
    free = (number for number in itertools.count() if number not in taken)
    numbered = (
        replace(card, module_id=next(free)) if card.module_id == UNKNOWN else card for card in cards
    )
    return tuple(sorted(numbered, key=lambda card: card.module_id))


def _real() -> Snapshot:
    # Here, because every `%load_ext` imports this package and few look at the cards.
    from hpu_magic.monitor import allotted, hlml, hlsmi

    try:
        found, seen = hlml.read()
    except hlml.HlmlUnavailable as unavailable:
        missing = str(unavailable)
        # With a code, it is the driver that does not answer, and would not answer others.
        if unavailable.code is not None or not hlsmi.installed():
            return Snapshot((), "none", missing)
        try:
            found, seen = hlsmi.read()
        except hlsmi.HlSmiUnavailable as failed:
            return Snapshot((), "none", f"{missing} {failed}")
        cards = allotted.named(_numbered(found))
        return Snapshot(cards, "hl-smi", _unseen(cards, seen.hidden))
    if not found:
        return Snapshot(
            (),
            "none",
            "The Gaudi driver answers but knows no card; "
            "a container sees only the cards that it was started with.",
        )
    cards = allotted.named(_numbered(found))
    return Snapshot(cards, "hlml", _unseen(cards, seen.hidden))


def _unseen(cards: tuple[CardReading, ...], hidden: bool) -> str | None:
    """Say which cards are in use by processes that cannot be seen, and why they cannot."""
    used = [card.label for card in cards if not card.holders and card.in_use]
    if not used:
        return None
    *others, last = used
    which = f"{', '.join(others)} and {last} are" if others else f"{last} is"
    if hidden:
        return f"{which} in use by processes of other users, which only root may see."
    return f"{which} in use by processes that cannot be seen from here, as in another container."
