"""A thread in each worker that publishes the state of its rank while a cell is running."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from typing import Any

from hpu_magic.parallel.pace import Pace
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.peak import since_reset
from hpu_magic.runtime.training.ranks import RankState

KEY = "hpu_magic.rank"
"""Key of a rank's state in the published data."""
CELL = "hpu_magic.cell"
"""Key of the cell number in the request's metadata."""
SECONDS = 0.5
"""Time between reports, in seconds."""


class RankReports:
    """Publishes the state of this rank while a cell is running in the worker's shell."""

    def __init__(self, shell: Any, rank: int) -> None:
        self._shell = shell
        self._rank = rank
        self._pace = Pace()
        self._running = threading.Event()
        self._card: int | None = None
        self._cells = 0
        self._number: int | None = None
        self._published = False

    def begin(self) -> None:
        """Start listening for cells."""
        self._shell.events.register("pre_run_cell", self._cell_begins)
        self._shell.events.register("post_run_cell", self._cell_ended)
        self._cache = self._shell.compile.cache
        self._shell.compile.cache = self._cache_cell
        threading.Thread(target=self._run, name="hpu_magic rank", daemon=True).start()

    def state(self, *, over: bool = False) -> RankState:
        """Return the rank's state, with the recent pace or, if ``over``, that of the whole cell."""
        memory = device.memory()
        if self._card is None and memory:
            card = device.own_card()
            self._card = card.module_id if card else None
        pace = self._pace.overall() if over else self._pace.lately()
        return RankState(
            self._rank,
            socket.gethostname(),
            os.getpid(),
            self._card,
            memory and memory.in_use,
            since_reset() if memory else None,
            memory and memory.limit,
            self._pace.steps,
            *pace,
            self._pace.card_step,
        )

    def _cell_begins(self, _: Any) -> None:
        request = self._shell.get_parent()
        self._shell.data_pub.set_parent(request)
        self._number = request.get("metadata", {}).get(CELL)
        if not device.importing():
            self._pace.watch(sys.modules.get("torch"))
        self._pace.reset()
        self._published = False
        self._cells += 1
        self._running.set()

    def _cache_cell(self, code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Cache a cell's source for tracebacks under the notebook's cell number."""
        name: str = self._cache(code, self._number or number, raw_code)
        return name

    def _cell_ended(self, _: Any) -> None:
        self._running.clear()
        # A short cell may acquire a card between two reports.
        if self._published or device.taken():
            self._publish(over=True)

    def _run(self) -> None:
        while True:
            self._running.wait()
            cell = self._cells
            time.sleep(SECONDS)
            same = self._running.is_set() and cell == self._cells
            if same and not device.importing():
                self._pace.watch(sys.modules.get("torch"))
                self._published = True
                self._publish()

    def _publish(self, *, over: bool = False) -> None:
        with contextlib.suppress(RuntimeError):  # if the card was lost, the cell reports the error
            self._shell.data_pub.publish_data({KEY: self.state(over=over)})
