"""What the chart of the device's memory says, live and as a picture: its title and its range."""

from __future__ import annotations

import math

from hpu_magic import units
from hpu_magic.runtime.present import drawing

LEGEND = (("in use", ""), ("peak", "4 3"))
"""The lines and their dashes."""

NEARLY_FULL = 0.75
"""From this share of the device's memory on, the chart reaches up to all of it."""


def memory_title(peak: float, limit: float) -> str:
    """Return the title, for example ``device memory: 12 MiB peak, 0.01 % of 96 GiB``.

    Parameters
    ----------
    peak, limit
        In bytes; NaN if not known.
    """
    title = "device memory"
    if math.isfinite(peak):
        title += f": {units.capacity(peak)} peak"
        if math.isfinite(limit) and limit > 0:
            title += f", {units.share(peak, limit)} of {units.capacity(limit)}"
    return title


def memory_ticks(highest: float, limit: float) -> list[float]:
    """Return round sizes from 0 up to at least ``highest``, or to the limit if that is near."""
    if highest > NEARLY_FULL * limit:
        return [limit * share / 4 for share in range(5)][::2]
    top = max(highest, 4.0)
    unit = 1024.0 ** math.floor(math.log(top, 1024))
    return [unit * tick for tick in drawing.round_numbers(0.0, top / unit, 3)]
