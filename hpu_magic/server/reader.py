"""The child process in which the server reads the cards, because a driver may hang or crash.

``python -m hpu_magic.server.reader`` first writes ``ready``. The process then answers each line of
standard input with one line of JSON, and exits at the end of the input. The names of holders
include arguments only if the ``--arguments`` option is passed.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any

from hpu_magic import monitor
from hpu_magic.monitor.processes import ancestors, with_arguments

READY = b"ready\n"
ARGUMENTS = "--arguments"

_LONGEST = 60.0  # seconds


def read(*, arguments: bool = False) -> dict[str, Any]:
    """Return a snapshot in the form that the server sends, except for ``ancestors``.

    ``ancestors`` lists the ancestors of a holder, starting with its parent; the server replaces it
    with ``kernel``. If `arguments` is true, the names of holders are full command lines.
    """
    snapshot = monitor.snapshot()
    if arguments:
        snapshot = with_arguments(snapshot, of_others=True)
    record = snapshot.as_record()
    holders = [holder for card in record["cards"] for holder in card["holders"]]
    found = ancestors(holder["pid"] for holder in holders)
    for holder in holders:
        holder["ancestors"] = found[holder["pid"]]
    return record


def main() -> None:
    """Answer requests until the input ends."""
    # The driver's libraries may print text, which must not become part of an answer.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        _write(answers, READY)
        while sys.stdin.readline():
            # The server kills a hanging reader, but this timer works even if the server was killed.
            faulthandler.dump_traceback_later(_LONGEST, exit=True)
            answer = json.dumps(read(arguments=ARGUMENTS in sys.argv[1:]), allow_nan=False)
            faulthandler.cancel_dump_traceback_later()
            _write(answers, answer.encode() + b"\n")
    except BrokenPipeError:
        return


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


if __name__ == "__main__":
    main()
