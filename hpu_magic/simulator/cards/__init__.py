"""The simulated cards: who owns which one, how full it is, how many there are."""

from .configuration import Configuration, DeviceType
from .driver import (
    AcquireError,
    Card,
    CardState,
    Holder,
    acquire,
    acquired,
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
    "device_count",
    "in_bad_fork",
    "snapshot",
]
