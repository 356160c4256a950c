"""The command ``hpu-magic top``: the machine's cards in a terminal."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from hpu_magic import monitor
from hpu_magic.monitor.processes import with_arguments
from hpu_magic.monitor.reading import Snapshot
from hpu_magic.monitor.record import as_record
from hpu_magic.monitor.top.card import MemoryHistory, page
from hpu_magic.monitor.top.screen import Screen
from hpu_magic.monitor.top.table import ORDERS, Order, headline, table
from hpu_magic.monitor.top.view import View

_SHORTEST = 0.2  # seconds


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        if options.json:
            print(json.dumps(as_record(_only(_look(), options.card)), indent=2))
        elif sys.stdout.isatty() and not options.once:
            _live(options)
        else:
            print("\n".join(_once(_look(), options)))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has seen enough; Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except _NoSuchCard as missing:
        print(f"hpu-magic: {missing}", file=sys.stderr)
        return 1
    return 0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser; what it yields has `run`."""
    top = commands.add_parser(
        "top",
        help="show all cards, how full they are and who holds them",
        description="Show all cards, how full they are and who holds them: live in a terminal, "
        "until q; once when the output goes elsewhere. Your own processes are shown with "
        "their arguments, kernels by their notebooks. No card is acquired.",
        epilog="Examples: hpu-magic top; hpu-magic top --card 3; hpu-magic top --sort idle; "
        "hpu-magic top --json | jq '.cards[].memory_used'",
    )
    top.add_argument("--json", action="store_true", help="print one snapshot as JSON and end")
    top.add_argument("--once", action="store_true", help="print one table and end")
    top.add_argument("--card", type=int, metavar="N", help="show only the card HPU N")
    top.add_argument(
        "--sort", choices=ORDERS, default="card", help="what to sort by (default: %(default)s)"
    )
    top.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="S",
        help=f"seconds between looks, at least {_SHORTEST} (default: %(default)g)",
    )
    top.set_defaults(run=run)


class _NoSuchCard(Exception):
    """The machine has no card of that number."""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST <= seconds <= 3600:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no interval; write a number of seconds from {_SHORTEST} to 3600"
        )
    return seconds


def _look() -> Snapshot:
    """Look at the cards; the viewer's own processes are shown with their arguments."""
    return with_arguments(monitor.snapshot())


def _only(snapshot: Snapshot, number: int | None) -> Snapshot:
    """Return a snapshot with the card of that module id alone; None means all."""
    if number is None:
        return snapshot
    cards = tuple(card for card in snapshot.cards if card.module_id == number)
    if not cards:
        known = ", ".join(card.label for card in snapshot.cards) or "no cards"
        raise _NoSuchCard(f"this machine has no HPU {number}; it has {known}.")
    return Snapshot(cards, snapshot.source, snapshot.reason)


def _once(snapshot: Snapshot, options: argparse.Namespace) -> list[str]:
    room = os.get_terminal_size().columns if sys.stdout.isatty() else None
    if options.card is not None:
        [card] = _only(snapshot, options.card).cards
        return [line for line in page(card, MemoryHistory(), room or 80) if line]
    lines = [line.text for line in table(snapshot, room, Order(options.sort))]
    return [headline(snapshot), *lines] if snapshot.cards else lines


class _Looks:
    """Looks at the cards again and again in a thread, so that keys need not wait for a driver.

    Parameters
    ----------
    interval : float
        Seconds between looks.
    screen : Screen
        What to wake after each.
    """

    def __init__(self, interval: float, screen: Screen) -> None:
        self._interval = interval
        self._screen = screen
        self._latest: Snapshot | BaseException | None = None
        threading.Thread(target=self._go_on, daemon=True).start()

    def take(self) -> Snapshot | None:
        """Return what was seen since the last call, if anything was; raise what went wrong."""
        latest, self._latest = self._latest, None
        if isinstance(latest, BaseException):
            raise latest
        return latest

    def _go_on(self) -> None:
        while True:
            try:
                self._latest = _look()
            except Exception as wrong:  # noqa: BLE001  # for the main thread to raise
                self._latest = wrong
            self._screen.wake()
            time.sleep(self._interval)


def _live(options: argparse.Namespace) -> None:
    if options.card is not None:
        _only(_look(), options.card)
    view = View(Order(options.sort), options.card)
    with Screen() as screen:
        looks = _Looks(options.interval, screen)
        while True:
            screen.draw(view.lines(*screen.size(), keys=screen.has_keys))
            keys = screen.wait()
            if not all(map(view.press, keys)):
                return
            if (seen := looks.take()) is not None:
                view.show(seen)
