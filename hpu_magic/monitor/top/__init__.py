"""The command ``hpu-magic top``: the machine's cards in a terminal."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hpu_magic import monitor
from hpu_magic.units import size

from ..processes import with_arguments
from ..reading import CardReading, Holder, Snapshot
from ..record import as_record

_SHORTEST = 0.2  # seconds
_BAR = 10  # characters

_COLUMNS = ("card", "name", "memory", "", "busy", "temp", "power", "clock", "held by")
_LAST_FIXED = 3  # the columns after this one and before the last are left out when all are empty

_ENTER = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        if options.json:
            print(json.dumps(as_record(_look()), indent=2))
        elif sys.stdout.isatty():
            _live(options.interval)
        else:
            print("\n".join(table(_look())))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read has seen enough; Python's own flush at the end must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def table(snapshot: Snapshot) -> list[str]:
    """Return the lines of a table of all cards; what is absent is a dash or has no column."""
    if not snapshot.cards:
        return [f"No Gaudi cards to show: {snapshot.reason}"]
    lines: list[Sequence[str]] = [_COLUMNS]
    for card in snapshot.cards:
        holders = [_holder(holder) for holder in card.holders] or ["-"]
        if card.error:
            holders.append(f"unknown: {card.error}")
        lines.append([*_figures(card), holders[0]])
        lines += [[*[""] * (len(_COLUMNS) - 1), holder] for holder in holders[1:]]
    shown = [
        column
        for column in range(len(_COLUMNS))
        if not _LAST_FIXED < column < len(_COLUMNS) - 1
        or any(line[column] not in ("", "-") for line in lines[1:])
    ]
    widths = [max(len(line[column]) for line in lines) for column in shown]
    text = [
        "  ".join(f"{line[column]:<{width}}" for column, width in zip(shown, widths, strict=True))
        for line in lines
    ]
    if snapshot.reason:
        text.append(snapshot.reason)
    return [_printable(line.rstrip()) for line in text]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser; what it yields has `run`."""
    top = commands.add_parser(
        "top",
        help="show all cards, how full they are and who holds them",
        description="Show all cards, how full they are and who holds them: live in a terminal, "
        "until Ctrl-C; once when the output goes elsewhere. Your own processes are shown with "
        "their arguments. No card is acquired.",
        epilog="Examples: hpu-magic top; hpu-magic top --interval 0.5; "
        "hpu-magic top --json | jq '.cards[].memory_used'",
    )
    top.add_argument("--json", action="store_true", help="print one snapshot as JSON and end")
    top.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="S",
        help=f"seconds between looks, at least {_SHORTEST} (default: %(default)g)",
    )
    top.set_defaults(run=run)


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


def _live(interval: float) -> None:
    with _screen():
        while True:
            snapshot = _look()
            columns, rows = shutil.get_terminal_size()
            title = f"{time.strftime('%H:%M:%S')}  {snapshot.source}  every {interval:g} s"
            lines = [f"hpu-magic top  {title}, Ctrl-C ends", "", *table(snapshot)][: rows - 1]
            text = "".join(f"{line[:columns]}{_END_OF_LINE}\n" for line in lines)
            sys.stdout.write(f"{_HOME}{text}{_END_OF_SCREEN}")
            sys.stdout.flush()
            time.sleep(interval)


@contextmanager
def _screen() -> Iterator[None]:
    """Draw on a screen of its own, and give the terminal back whatever ends the program."""
    before = signal.signal(signal.SIGTERM, _stop)
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _figures(card: CardReading) -> list[str]:
    name = f"{card.name} simulated" if card.simulated else card.name
    memory, bar = "-", ""
    if card.memory_used is not None and card.memory_total:
        share = min(card.memory_used / card.memory_total, 1.0)
        memory = f"{size(card.memory_used)} / {size(card.memory_total)}"
        bar = f"[{'#' * round(share * _BAR):.<{_BAR}}] {share:4.0%}"
    return [
        str(card.index),
        name,
        memory,
        bar,
        _measured(card.utilization, "%"),
        _measured(card.temperature, "°C"),
        _measured(card.power, "W"),
        _measured(card.clock, "MHz"),
    ]


def _measured(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f} {unit}"


def _holder(holder: Holder) -> str:
    who = [f"pid {holder.pid}"] if holder.pid else []
    who += [holder.user] if holder.user else []
    return f"{holder.command} ({', '.join(who)})" if who else holder.command


def _printable(line: str) -> str:
    """Take from command lines what a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in line)
