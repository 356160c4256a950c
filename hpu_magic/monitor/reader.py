"""A process that reads the cards for another, which a hung or crashing driver must not take along.

``python -m hpu_magic.monitor.reader`` writes ``ready``, then answers each line on its standard
input with a snapshot as one line of JSON, and ends when its input does. Holders are named without
their arguments, unless it is started with ``--arguments``.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from hpu_magic import monitor
from hpu_magic.monitor.processes import Ancestry, with_arguments
from hpu_magic.monitor.record import as_record

READY = b"ready\n"
ARGUMENTS = "--arguments"

_LONGEST = 60.0  # seconds


def read(*, arguments: bool = False) -> dict[str, Any]:
    """Take a snapshot as a record; each holder names its ``ancestors`` too, nearest first.

    With `arguments`, holders are shown by all that their command lines hold.
    """
    snapshot = monitor.snapshot()
    record = as_record(with_arguments(snapshot, of_others=True) if arguments else snapshot)
    ancestry = Ancestry()
    for card in record["cards"]:
        for holder in card["holders"]:
            holder["ancestors"] = ancestry.of(holder["pid"])
    return record


def main() -> None:
    """Answer requests until there are no more."""
    # The driver's libraries may print; what is printed must not become part of an answer.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _write(answers, READY)
        while sys.stdin.readline():
            # Whoever asks kills a reader that hangs, unless they have been killed themselves.
            faulthandler.dump_traceback_later(_LONGEST, exit=True)
            answer = json.dumps(read(arguments=ARGUMENTS in sys.argv[1:]), allow_nan=False)
            faulthandler.cancel_dump_traceback_later()
            _write(answers, answer.encode() + b"\n")
    except BrokenPipeError:
        # Nobody is left to answer.
        return


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


if __name__ == "__main__":
    main()
