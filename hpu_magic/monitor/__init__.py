"""Which cards the machine has, how full they are and who holds them.

Reading acquires no card and loads no torch, so that a server may do it.
"""

from __future__ import annotations

from hpu_magic.backend import is_simulated

from .reading import CardReading, Holder, Snapshot

__all__ = ["CardReading", "Holder", "Snapshot", "snapshot"]


def snapshot() -> Snapshot:
    """Read all cards of the machine.

    Real cards where HLML knows any; else the simulated ones, unless the
    vendor's package is installed and the simulator therefore not in use. The
    snapshot's `reason` then says why it is empty.
    """
    # Here, because every `%load_ext` imports this package and few look at the cards.
    from . import hlml, simulated

    try:
        real = hlml.read()
        missing = "HLML answers but knows no card."
    except hlml.HlmlUnavailable as unavailable:
        real, missing = (), str(unavailable)
    if real:
        return Snapshot(real, "hlml")
    if not is_simulated():
        return Snapshot((), "none", missing)
    try:
        return Snapshot(simulated.read(), "simulator")
    except (RuntimeError, ValueError) as refused:
        return Snapshot((), "simulator", str(refused))
