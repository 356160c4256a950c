"""The simulated cards: who owns which one, how full it is, how many there are."""

from hpu_magic.simulator.cards.choice import AcquireError, be_rank
from hpu_magic.simulator.cards.configuration import Configuration, DeviceType
from hpu_magic.simulator.cards.driver import (
    Card,
    CardState,
    Holder,
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
    "Holder",
    "acquire",
    "acquired",
    "be_rank",
    "choose",
    "device_count",
    "in_bad_fork",
    "snapshot",
]
