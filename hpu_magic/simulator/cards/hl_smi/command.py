"""The command ``hl-smi`` and its options."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence

from hpu_magic.plain_text import printable
from hpu_magic.simulator.cards.hl_smi import fields, query, table
from hpu_magic.simulator.cards.hl_smi.card_properties import NOT_AVAILABLE, Aip, aips
from hpu_magic.simulator.release import DRIVER

_FORMATS = {"csv", "noheader", "nounits"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hl-smi`` and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="hl-smi", description="Show the simulated Gaudi cards of this machine."
    )
    add_options(parser)
    return run(parser.parse_args(arguments))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the vendor's options that the simulator supports."""
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-L", "--list-aips", action="store_true", help="list the cards")
    output.add_argument("-q", "--query", action="store_true", help="show all values of each card")
    output.add_argument(
        "-Q",
        "--query-aip",
        type=_fields,
        metavar="FIELDS",
        help=f"show these comma-separated fields: {', '.join(fields.FIELDS)}",
    )
    output.add_argument("-v", "--version", action="store_true", help="show the version")
    parser.add_argument(
        "-d",
        "--display",
        type=_sections,
        metavar="SECTIONS",
        help=f"with -q, show only these sections: {', '.join(query.SECTIONS)}",
    )
    parser.add_argument(
        "-f",
        "--format",
        type=_format,
        metavar="FORMAT",
        help="output format of -Q: csv, optionally followed by ,noheader and ,nounits",
    )
    parser.add_argument("-i", "--id", metavar="BUS_ID", help="show only the card with this bus ID")
    parser.add_argument(
        "-l",
        "--loop",
        nargs="?",
        type=float,
        const=5.0,
        metavar="SECONDS",
        help="repeat every SECONDS seconds (default: 5)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the output, repeatedly if ``--loop`` is passed, and return the exit status."""
    if options.query_aip and not options.format:
        return _refuse("-Q requires a format: -f csv, csv,noheader or csv,noheader,nounits.")
    try:
        while True:
            print(printable("\n".join(_output(options)), keep="\n\t"), flush=True)
            if options.loop is None:
                return 0
            time.sleep(max(options.loop, 0.1))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has closed the pipe. Prevent Python's flush at exit from printing an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RuntimeError, ValueError) as error:
        return _refuse(str(error))


def _output(options: argparse.Namespace) -> list[str]:
    if options.version:
        return [f"HL-SMI Version: hl-{DRIVER}"]
    cards = _chosen(options.id)
    if options.list_aips:
        return [line for aip in cards for line in _listed(aip)]
    if options.query:
        return query.query(cards, options.display or query.SECTIONS)
    if options.query_aip:
        form = options.format
        return fields.rows(
            cards, options.query_aip, header="noheader" not in form, units="nounits" not in form
        )
    return table.table(cards)


def _listed(aip: Aip) -> list[str]:
    return [
        f"AIP {aip.index}: {aip.name}, simulated (Bus-Id: {aip.bus_id}, UUID: {NOT_AVAILABLE})",
        f"    Module ID : {aip.index}",
    ]


def _chosen(bus_id: str | None) -> list[Aip]:
    cards = aips()
    chosen = [aip for aip in cards if bus_id in (None, aip.bus_id)]
    if not chosen:
        known = ", ".join(aip.bus_id for aip in cards)
        raise ValueError(f"Unknown bus ID {bus_id!r}; use one of {known}.")
    return chosen


def _refuse(why: str) -> int:
    print(f"hl-smi: {printable(why)}", file=sys.stderr)
    return 1


def _fields(text: str) -> list[str]:
    return _known(text, fields.FIELDS, "field")


def _sections(text: str) -> list[str]:
    return _known(text.upper(), query.SECTIONS, "section")


def _format(text: str) -> list[str]:
    words = _known(text, _FORMATS, "format")
    if "csv" not in words:
        raise argparse.ArgumentTypeError(f"{text!r} does not contain csv; use csv,{text}")
    return words


def _known(text: str, known: Collection[str], what: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise argparse.ArgumentTypeError(
                f"unknown {what} {word!r}; use {', '.join(sorted(known))}"
            )
    return words


if __name__ == "__main__":
    sys.exit(main())
