"""Cards and ports of servers that are starting.

A server does not acquire its port and cards until a few seconds after it has started. Until then,
another notebook of the same user must not choose them. A reservation is a file lock, which is
released when the process ends. If the folder is not usable, nothing is reserved.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from types import TracebackType
from typing import TextIO

from hpu_magic import backend, monitor
from hpu_magic.errors import HPUError
from hpu_magic.holders import holder
from hpu_magic.runtime.device.free_cards import free_cards
from hpu_magic.serving.checks import free_port

_CHOICE = "choice"


class Reservations:
    """A context in which a port and cards are reserved for a server of this process."""

    def __init__(self) -> None:
        self._folder = backend.cards_folder()
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> Reservations:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release(*self._files)

    def port(self, port: int) -> int:
        """Reserve `port` and return it, or return any free port if it is 0.

        Raises
        ------
        HPUError
            The port is in use, reserved or not between 0 and 65535.
        """
        chosen = free_port(port)
        if port and (pid := self._reserve(f"port-{port}")) is not None:
            raise HPUError(
                f"Port {port} cannot be used, because {holder(pid).named()} is starting a server "
                "with it: pass another number, or --port 0 for any free port."
            )
        return chosen

    def cards(self, count: int) -> list[int]:
        """Reserve `count` free cards and return their module IDs, or none if they are unknown.

        Raises
        ------
        HPUError
            Too few visible cards are free and not reserved.
        """
        self._reserve(_CHOICE, wait=True)
        machine = monitor.snapshot()
        names = {card.module_id: f"card-{card.module_id}" for card in machine.cards}
        cards = []
        for card in machine.cards:
            pid = self._reserve(names[card.module_id])
            others = () if pid is None else (holder(pid),)
            cards.append(replace(card, holders=(*card.holders, *others)))
        modules = free_cards(replace(machine, cards=tuple(cards)), count, "server")
        self._release(*(name for module, name in names.items() if module not in modules))
        self._release(_CHOICE)
        return modules

    def _reserve(self, name: str, *, wait: bool = False) -> int | None:
        """Reserve a name and return None, or return the PID of the process that holds it."""
        if self._folder is None:
            return None
        path = self._folder / f"server-{name}"
        try:
            file = path.open("a+")
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            with file:
                file.seek(0)
                return int(file.read() or 0)
        except OSError:  # the file system does not support locks
            file.close()
            return None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._files[name] = file
        return None

    def _release(self, *names: str) -> None:
        for name in names:
            if file := self._files.pop(name, None):
                file.close()
