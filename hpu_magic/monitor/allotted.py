"""The users to whom an administrator or a hub has assigned cards.

A hub such as JupyterHub maintains a file that maps module IDs to user names:
``{"0": "ada", "1": "grace"}``. The variable ``HPU_MAGIC_CARD_USERS`` contains the path of the file.
Without the file, only root can see which process of another user holds a card.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpu_magic.holders import Holder
from hpu_magic.monitor.reading import CardReading

VARIABLE = "HPU_MAGIC_CARD_USERS"
_OF_ANOTHER = "a process of another user"


def named(cards: Sequence[CardReading]) -> tuple[CardReading, ...]:
    """Set the user of each card's holders to the user to whom the card is assigned.

    A card that is in use but has no visible holder gets a holder with `pid` 0.
    """
    users = _users()
    return tuple(_named(card, users.get(card.module_id)) for card in cards)


def _named(card: CardReading, user: str | None) -> CardReading:
    if user is None:
        return card
    if card.holders:
        return replace(card, holders=tuple(replace(each, user=user) for each in card.holders))
    return replace(card, holders=(Holder(0, _OF_ANOTHER, user),)) if card.in_use else card


def _users() -> Mapping[int | None, str]:
    path = os.environ.get(VARIABLE)
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        return {int(module): str(user) for module, user in content.items()}
    except (OSError, ValueError, AttributeError):  # the file is missing or incomplete
        return {}
