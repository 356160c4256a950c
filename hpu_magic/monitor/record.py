"""A snapshot as plain data, for JSON."""

from __future__ import annotations

import time
from typing import Any

from hpu_magic.monitor.reading import CardReading, Holder, Snapshot


def as_record(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot taken just now as nested dicts and lists.

    Keys are the attributes of `Snapshot`, `CardReading`, `Holder` and `Fit`, and
    ``time``, in seconds since the epoch.
    """
    return {
        "time": round(time.time(), 3),
        "source": snapshot.source,
        "reason": snapshot.reason,
        "cards": [_card(card) for card in snapshot.cards],
    }


def _card(card: CardReading) -> dict[str, Any]:
    return {**vars(card), "holders": [_holder(holder) for holder in card.holders]}


def _holder(holder: Holder) -> dict[str, Any]:
    return {**vars(holder), "fit": holder.fit and holder.fit.as_record()}
