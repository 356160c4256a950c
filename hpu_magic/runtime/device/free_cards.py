"""Select free cards for new processes, or explain why there are not enough."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hpu_magic.errors import HPUError
from hpu_magic.monitor import CardReading, Snapshot
from hpu_magic.runtime.device import device

VISIBLE = "HABANA_VISIBLE_MODULES"


def free_cards(machine: Snapshot, count: int | None, who: str = "worker") -> list[int]:
    """Return the module IDs of `count` free cards, or of all free cards if `count` is None.

    The list is empty if `count` is passed but the machine's cards are unknown. In messages,
    `who` is the name for a process that needs one card.

    Raises
    ------
    HPUError
        Too few cards are free or visible.
    """
    cards = visible_cards(machine)
    if machine.cards and not cards:
        raise HPUError(
            f"{VISIBLE}={os.environ[VISIBLE]!r} excludes all {len(machine.cards)} cards: unset it, "
            "or set it to their module ids, separated by commas."
        )
    free = [card.module_id for card in cards if not card.holders and not card.error]
    if not cards and count is None:
        raise HPUError(f"The number of cards is unknown: pass --cards N. {machine.reason}")
    if count is not None and cards and count > len(cards):
        raise HPUError(
            f"{count} {who}s need {count} cards, but there are only {len(cards)}: pass --cards "
            f"{len(cards)}."
        )
    if cards and len(free) < (count or 1):
        several = count is not None and count > 1
        wanted = f"{count} {who}s need {count} cards" if several else f"A {who} needs a card"
        raise HPUError(f"{wanted}, but {_busy(cards, len(free))}")
    return free[:count]


def visible_cards(machine: Snapshot) -> list[CardReading]:
    """Return the cards that this process may use."""
    chosen = os.environ.get(VISIBLE)
    numbers = None if chosen is None else chosen.replace(" ", "").split(",")
    return [card for card in machine.cards if numbers is None or str(card.module_id) in numbers]


def _busy(cards: Sequence[CardReading], free: int) -> str:
    busy = [card for card in cards if card.holders or card.error]
    who = "; ".join(f"{card.label} is held by {card.held_by()}" for card in busy)
    own = device.own_card() is not None
    fewer = f", or pass --cards {free}" if free else ""
    fix = "release this notebook's card with %hpu_restart" if own else "wait for one"
    return f"only {free} of {len(cards)} are free: {who}. You can {fix}{fewer}."
