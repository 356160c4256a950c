"""The one place that decides which ``habana_frameworks`` is in use: the vendor's or ours."""

from __future__ import annotations

from hpu_magic import __version__
from hpu_magic.simulator import TooLate as TooLate
from hpu_magic.simulator import activate as _activate_simulator
from hpu_magic.simulator import announcement as _announce_simulator
from hpu_magic.simulator.finder import vendor_package


def is_simulated() -> bool:
    """Tell whether the ``hpu`` device is simulated: true where the vendor's package is absent."""
    return vendor_package() is None


def version() -> str:
    """Return whose ``habana_frameworks`` is in use, and its version."""
    if is_simulated():
        return f"simulated by hpu_magic {__version__}"
    return f"habana-torch-plugin {installed_version('habana-torch-plugin')}"


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, in words where it has none."""
    from importlib import metadata  # slow to import, and the extension loads in an instant

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def activate() -> str:
    """Make ``habana_frameworks`` importable and return one line that says whose it is.

    Imports no torch and acquires no card.

    Raises
    ------
    TooLate
        The simulator is needed, and PyTorch has settled without a device already.
    RuntimeError, ValueError
        The simulator cannot be turned on; the message says why.
    """
    if not is_simulated():
        return "Intel Gaudi: the hpu device is the vendor's (habana_frameworks)."
    _activate_simulator(announce=False)
    return _announce_simulator()
