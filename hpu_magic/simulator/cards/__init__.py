"""The simulated cards: their number, owners and memory."""

from hpu_magic.simulator.cards.card_selection import AcquireError, be_rank
from hpu_magic.simulator.cards.configuration import Configuration, DeviceType
from hpu_magic.simulator.cards.driver import (
    Card,
    CardState,
    acquire,
    acquired,
    choose,
    device_count,
    in_bad_fork,
    snapshot,
)

__all__ = [
    "AcquireError",
    "Card",
    "CardState",
    "Configuration",
    "DeviceType",
    "acquire",
    "acquired",
    "be_rank",
    "choose",
    "device_count",
    "in_bad_fork",
    "snapshot",
]
