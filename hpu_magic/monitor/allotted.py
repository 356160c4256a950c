"""Whose cards are, where somebody who starts servers for users has allotted them.

``HPU_MAGIC_CARD_USERS`` names a file that who allots cards keeps, such as JupyterHub:
``{"0": "ada", "1": "grace"}``, module ids and users' names. Without root's rights nobody sees whose
process holds a card of another user's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpu_magic.monitor.reading import CardReading, Holder

VARIABLE = "HPU_MAGIC_CARD_USERS"
_OF_ANOTHER = "a process of another user"


def named(cards: Sequence[CardReading]) -> tuple[CardReading, ...]:
    """Return the cards with their holders by the names of those to whom the cards are allotted.

    A card that is in use by a process that cannot be seen gets a holder, whose `pid` is 0.
    """
    users = _users()
    return tuple(_named(card, users.get(card.module_id)) for card in cards)


def _named(card: CardReading, user: str | None) -> CardReading:
    if user is None:
        return card
    if card.holders:
        return replace(card, holders=tuple(replace(one, user=user) for one in card.holders))
    return replace(card, holders=(Holder(0, _OF_ANOTHER, user),)) if card.in_use else card


def _users() -> Mapping[int | None, str]:
    path = os.environ.get(VARIABLE)
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
        return {int(module): str(user) for module, user in written.items()}
    except (OSError, ValueError, AttributeError):  # being written, or none: cards stay as seen
        return {}
