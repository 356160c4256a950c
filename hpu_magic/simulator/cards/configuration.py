"""The simulated cards of this process, as configured by environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

MOST_CARDS = 8
"""The maximum number of cards, equal to the number of cards in the vendor's machines."""

HOSTS = ("ideal", "measured")
"""How the host's clock advances: only by the time to launch work, or also by the time that this
process takes between operators, for example to load data."""

GIB = 1 << 30
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))?\s*([KMGT]iB|B|)", re.IGNORECASE)


class DeviceType(IntEnum):
    """Card generations, numbered as in the vendor's ``synDeviceType``."""

    GAUDI = 2
    GAUDI2 = 4
    GAUDI3 = 5


_NOMINAL_MEMORY = {
    DeviceType.GAUDI: 32 * GIB,
    DeviceType.GAUDI2: 96 * GIB,
    DeviceType.GAUDI3: 128 * GIB,
}


@dataclass(frozen=True)
class Configuration:
    """The simulated cards of this machine, as configured for one process.

    Attributes
    ----------
    generation : str
        ``"GAUDI"``, ``"GAUDI2"`` or ``"GAUDI3"``.
    count : int
        The number of cards, from 1 to 8.
    capacity : int
        The memory of each card in bytes.
    """

    generation: str
    count: int
    capacity: int

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Configuration:
        """Read ``HPU_MAGIC_CARD``, ``HPU_MAGIC_CARDS`` and ``HPU_MAGIC_MEMORY``.

        Raises
        ------
        ValueError
            A variable has an invalid value.
        """
        generation = _generation(environ.get("HPU_MAGIC_CARD", "gaudi2"))
        count = _count(environ.get("HPU_MAGIC_CARDS", str(MOST_CARDS)))
        memory = environ.get("HPU_MAGIC_MEMORY")
        capacity = _NOMINAL_MEMORY[generation] if memory is None else _bytes(memory)
        return cls(generation.name, count, capacity)


def card_time_host(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the host that ``HPU_MAGIC_CARD_TIME`` selects (see `HOSTS`), or None if it is off.

    Raises
    ------
    ValueError
        The value is invalid.
    """
    value = environ.get("HPU_MAGIC_CARD_TIME", "").strip().lower()
    if value in ("", "0"):
        return None
    hosts = {"1": "ideal", **{each: each for each in HOSTS}}
    if value not in hosts:
        raise ValueError(
            f"HPU_MAGIC_CARD_TIME={value!r} is not valid; use 1 for an ideal host, or 'measured' "
            "to include the time that this process takes between operators."
        )
    return hosts[value]


def _generation(text: str) -> DeviceType:
    try:
        return DeviceType[text.strip().upper()]
    except KeyError:
        raise ValueError(
            f"HPU_MAGIC_CARD={text!r} is not a card generation; use gaudi, gaudi2 or gaudi3."
        ) from None


def _count(text: str) -> int:
    if not re.fullmatch(rf"\s*[1-{MOST_CARDS}]\s*", text):
        raise ValueError(
            f"HPU_MAGIC_CARDS={text!r} is not a valid number of cards; use an integer from 1 to "
            f"{MOST_CARDS}."
        )
    return int(text)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = 0
    if match:
        whole, decimals, unit = match[1], match[2] or "", match[3].lower()
        size = int(whole + decimals) * _UNITS[unit] // 10 ** len(decimals)
    if not 0 < size < 1 << 63:
        raise ValueError(
            f"HPU_MAGIC_MEMORY={text!r} is not a valid memory size; use a size per card, such as "
            "96GiB or 512MiB, or a number of bytes."
        )
    return size
