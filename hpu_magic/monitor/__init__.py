"""Which cards the machine has, how full they are and who holds them.

Reading acquires no card and loads no torch, so that a server may do it.
"""

from __future__ import annotations

from importlib.machinery import PathFinder

from . import hlml, simulated
from .reading import CardReading, Holder, Snapshot

__all__ = ["CardReading", "Holder", "Snapshot", "snapshot"]


def snapshot() -> Snapshot:
    """Read all cards of the machine.

    Real cards where HLML knows any; else the simulated ones, unless the
    vendor's package is installed and the simulator therefore not in use. The
    snapshot's `reason` then says why it is empty.
    """
    try:
        real = hlml.read()
        missing = "HLML answers but knows no card."
    except hlml.HlmlUnavailable as unavailable:
        real, missing = (), str(unavailable)
    if real:
        return Snapshot(real, "hlml")
    if _vendor_installed():
        return Snapshot((), "none", missing)
    try:
        return Snapshot(simulated.read(), "simulator")
    except (RuntimeError, ValueError) as refused:
        return Snapshot((), "simulator", str(refused))


def _vendor_installed() -> bool:
    # PathFinder, not find_spec: the simulator's own import finder must not answer.
    package = PathFinder.find_spec("habana_frameworks")
    places = package and package.submodule_search_locations
    return bool(places and PathFinder.find_spec("habana_frameworks.torch", places))
