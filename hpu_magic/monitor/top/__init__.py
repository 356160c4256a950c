"""The command ``hpu-magic top``, which shows the machine's cards in a terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from hpu_magic import monitor
from hpu_magic.errors import HPUError
from hpu_magic.monitor.processes import with_arguments
from hpu_magic.monitor.reading import Snapshot
from hpu_magic.monitor.top.card import MemoryHistory, page
from hpu_magic.monitor.top.screen import Screen
from hpu_magic.monitor.top.table import ORDERS, Order, headline, table
from hpu_magic.monitor.top.view import View

_SHORTEST = 0.2  # seconds


def run(options: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    try:
        if options.json:
            print(json.dumps(_only(_sample(), options.number).as_record(), indent=2))
        elif sys.stdout.isatty() and not options.once:
            _live(options)
        else:
            print("\n".join(_once(_sample(), options)))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe, so prevent Python's flush at exit from printing an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except _NoSuchCardError as missing:
        print(f"hpu-magic: {missing}", file=sys.stderr)
        return 1
    return 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser, which sets the `run` option."""
    top = commands.add_parser(
        "top",
        help="show all cards with their memory and holders",
        description="Show all cards with their memory and holders. In a terminal, the table is "
        "updated until you press q; otherwise, it is printed once. Your own processes are shown "
        "with their arguments, and kernels with the names of their notebooks. The command does not "
        "acquire a card.",
        epilog="Examples: hpu-magic top; hpu-magic top 3; hpu-magic top --sort idle; "
        "hpu-magic top --json | jq '.cards[].memory_used'",
    )
    top.add_argument("--json", action="store_true", help="print one snapshot as JSON and exit")
    top.add_argument("--once", action="store_true", help="print one table and exit")
    top.add_argument("number", nargs="?", type=int, metavar="N", help="show only the card HPU N")
    top.add_argument(
        "--sort", choices=ORDERS, default="card", help="column to sort by (default: %(default)s)"
    )
    top.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="S",
        help=f"seconds between samples, at least {_SHORTEST} (default: %(default)g)",
    )
    top.set_defaults(run=run)


class _NoSuchCardError(HPUError):
    """Raised if the machine has no card with the given number."""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST <= seconds <= 3600:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid interval; use a number of seconds from {_SHORTEST} to 3600"
        )
    return seconds


def _sample() -> Snapshot:
    """Return a snapshot that shows the command-line arguments of this user's processes."""
    return with_arguments(monitor.snapshot())


def _only(snapshot: Snapshot, number: int | None) -> Snapshot:
    """Return a snapshot with only the card that has the given module ID; None keeps all cards."""
    if number is None:
        return snapshot
    cards = tuple(card for card in snapshot.cards if card.module_id == number)
    if not cards:
        known = ", ".join(card.label for card in snapshot.cards) or "no cards"
        raise _NoSuchCardError(f"this machine has no HPU {number}; it has {known}.")
    return Snapshot(cards, snapshot.source, snapshot.reason)


def _once(snapshot: Snapshot, options: argparse.Namespace) -> list[str]:
    room = os.get_terminal_size().columns if sys.stdout.isatty() else None
    if options.number is not None:
        [card] = _only(snapshot, options.number).cards
        return [line for line in page(card, MemoryHistory(), room or 80) if line]
    lines = [line.text for line in table(snapshot, room, Order(options.sort))]
    return [headline(snapshot), *lines] if snapshot.cards else lines


class _Samples:
    """Takes samples in a separate thread, so that keys keep working even if the driver is slow.

    `interval` is in seconds. Each sample wakes up the screen, which then redraws.
    """

    def __init__(self, interval: float, screen: Screen) -> None:
        self._interval = interval
        self._screen = screen
        self._latest: Snapshot | BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def take(self) -> Snapshot | None:
        """Return the latest sample if it is new, else None; reraise any error from the thread."""
        latest, self._latest = self._latest, None
        if isinstance(latest, BaseException):
            raise latest
        return latest

    def _run(self) -> None:
        while True:
            try:
                self._latest = _sample()
            except Exception as error:  # noqa: BLE001  # raised again in the main thread
                self._latest = error
            self._screen.wake()
            time.sleep(self._interval)


def _live(options: argparse.Namespace) -> None:
    if options.number is not None:
        _only(_sample(), options.number)
    view = View(Order(options.sort), options.number)
    with Screen() as screen:
        samples = _Samples(options.interval, screen)
        while True:
            screen.draw(view.lines(*screen.size(), keys=screen.has_keys))
            keys = screen.wait()
            if not all(map(view.press, keys)):
                return
            if (snapshot := samples.take()) is not None:
                view.show(snapshot)
