"""Determine how many cards the argument ``devices`` of a Trainer or Fabric selects."""

from __future__ import annotations

from hpu_magic.errors import HPUError
from hpu_magic.lightning.processes.devices import vendor_hpu


def number_of_cards(devices: object) -> int:
    """Return the number of cards that `devices` specifies.

    `devices` is a number of cards, -1 or ``"auto"`` for all cards in the machine, or a list of
    indices that starts at 0. Numbers and lists may also be passed as strings.

    Raises
    ------
    HPUError
        `devices` is invalid, or the machine has fewer cards.
    """
    hpu = vendor_hpu()
    cards = 0 if hpu is None else int(hpu.device_count())
    requested = _requested(devices)
    if requested == -1:
        return max(cards, 1)
    if requested > max(cards, 1):
        raise HPUError(
            f"devices={devices!r} was requested, but this machine has "
            f"{cards} card{'' if cards == 1 else 's'}."
        )
    return requested


def _requested(devices: object) -> int:
    """Return the requested number of cards, or -1 for all cards."""
    if devices == "auto":
        return -1
    if isinstance(devices, str):
        names = [name.strip() for name in devices.split(",") if name.strip()]
        if all(name.removeprefix("-").isdecimal() for name in names):
            listed = [int(name) for name in names]
            if "," not in devices and len(listed) == 1:
                return _checked_count(devices, listed[0])
            return _length(devices, listed)
    elif isinstance(devices, int) and not isinstance(devices, bool):
        return _checked_count(devices, devices)
    elif isinstance(devices, list | tuple) and all(type(index) is int for index in devices):
        return _length(devices, list(devices))
    raise HPUError(
        f"devices={devices!r} is neither a number nor a list of numbers: write devices=1."
    )


def _checked_count(devices: object, count: int) -> int:
    if count == 0 or count < -1:
        raise HPUError(f"devices={devices!r} is not a number of cards: write devices=1.")
    return count


def _length(devices: object, indices: list[int]) -> int:
    if not indices:
        raise HPUError(f"devices={devices!r} does not contain any cards: write devices=1.")
    if len(set(indices)) < len(indices):
        raise HPUError(
            f"devices={devices!r} contains a card twice: write devices={len(set(indices))}."
        )
    if sorted(indices) != list(range(len(indices))):
        raise HPUError(
            f"devices={devices!r} is not supported: each process sees its card as hpu:0, so write "
            f"devices={len(indices)} and select the card{'s' if len(indices) > 1 else ''} with the "
            "environment variable HABANA_VISIBLE_MODULES."
        )
    return len(indices)
