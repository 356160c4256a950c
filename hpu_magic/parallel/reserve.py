"""Prevent the notebook's process from acquiring the cards that its workers will use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.free_cards import VISIBLE


class Reservation:
    """Cards that this process must not use until the reservation is released.

    A process that already holds a card keeps it. If no other card is left, nothing is reserved.
    `modules` contains the module IDs of the reserved cards, and `visible` those of all cards that
    this process may use.
    """

    def __init__(self, modules: Sequence[int], visible: Sequence[int]) -> None:
        self._before = os.environ.get(VISIBLE)
        left = [module for module in visible if module not in modules]
        self._set = ",".join(map(str, left)) if modules and device.own_card() is None else ""
        if self._set:
            os.environ[VISIBLE] = self._set

    def release(self) -> None:
        """Restore ``HABANA_VISIBLE_MODULES``, unless other code has changed it."""
        if not self._set or os.environ.get(VISIBLE) != self._set:
            return
        if self._before is None:
            del os.environ[VISIBLE]
        else:
            os.environ[VISIBLE] = self._before
        self._set = ""
