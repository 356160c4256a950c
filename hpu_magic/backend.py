"""Choose between the vendor's ``habana_frameworks`` and the simulator's."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpu_magic import __version__, private_folder
from hpu_magic.simulator import TooLateError as TooLateError
from hpu_magic.simulator import activate as _activate_simulator
from hpu_magic.simulator import announcement as _announce_simulator
from hpu_magic.simulator.activation import SWITCH
from hpu_magic.simulator.finder import vendor_package

if TYPE_CHECKING:
    from hpu_magic.simulator.card_time import Reading, Record


def is_simulated() -> bool:
    """Return whether the ``hpu`` device is simulated because the vendor's package is absent."""
    return vendor_package() is None


def variables_for_children() -> dict[str, str]:
    """Return the environment variables that give a child process the same ``hpu`` device."""
    return {SWITCH: "1"} if is_simulated() else {}


def card_time() -> Reading | None:
    """Return the state of the simulated card's clock, or None if it is off or the card is real."""
    # The module is not imported if the clock is off, because this function must be fast.
    clock: Any = sys.modules.get("hpu_magic.simulator.card_time")
    if clock is None or not clock.is_on():
        return None
    reading: Reading = clock.read()
    return reading


def card_records() -> AbstractContextManager[list[Record]]:
    """Record the simulated card's work in a ``with`` block; the list is filled when the block ends.

    The list remains empty if the card's clock is off or the card is real.
    """
    if card_time() is None:
        return nullcontext([])
    from hpu_magic.simulator import card_time as clock

    return clock.recording()


def card_trace_events(records: Sequence[Record], start: float) -> list[dict[str, object]]:
    """Return trace events for the work in `card_records`; see the simulator's function."""
    from hpu_magic.simulator import card_time as clock

    return clock.trace_events(records, start)


def set_card_time(host: str) -> None:
    """Start the simulated card's clock with an ideal or measured host, or stop it.

    ``host`` is ``"ideal"``, ``"measured"`` or ``"off"``, and also applies to child processes that
    are started later. On a real card, this function only warns that the setting has no effect.
    """
    if not is_simulated():
        if host != "off":
            warnings.warn(
                "card_time has no effect: it is an estimate for simulated cards.", stacklevel=2
            )
        return
    from hpu_magic.simulator import card_time as clock

    os.environ["HPU_MAGIC_CARD_TIME"] = "0" if host == "off" else host
    if host == "off":
        clock.stop()
    else:
        clock.start(host)


def cards_folder() -> Path | None:
    """Return a private folder for the state of this machine's cards, or None if there is none.

    A test or a job may have its own folder of simulated cards.
    """
    if not is_simulated():
        return private_folder.made()
    from hpu_magic.simulator.cards import place

    try:
        return place.directory()
    except (RuntimeError, OSError):
        return None


def version() -> str:
    """Return the source and the version of ``habana_frameworks``."""
    if is_simulated():
        return f"simulated by hpu_magic {__version__}"
    return f"habana-torch-plugin {installed_version('habana-torch-plugin')}"


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, or ``of unknown version``."""
    from importlib import metadata  # a slow import, but the extension must load fast

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def activate() -> str:
    """Make ``habana_frameworks`` importable and return a line that describes its source.

    This neither imports torch nor acquires a card.

    Raises
    ------
    TooLateError
        The simulator is needed, but PyTorch has already initialized its backends.
    RuntimeError, ValueError
        The simulator cannot be activated; the message contains the reason.
    """
    if not is_simulated():
        return "Intel Gaudi: the vendor's package (habana_frameworks) provides the hpu device."
    _activate_simulator(announce=False)
    return _announce_simulator()
