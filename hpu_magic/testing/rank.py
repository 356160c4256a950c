"""The process of an ``hpu_cards`` rank, which runs functions for a test."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from hpu_magic import sessions
from hpu_magic.errors import HPUError
from hpu_magic.parallel import transfer
from hpu_magic.runtime.measure.ledger import Ledger
from hpu_magic.testing.limits import Allowed, Cost


def serve(connection: Connection) -> None:
    """Initialize this process as a rank, and run functions until an empty message arrives."""
    backend, allowed = connection.recv()
    with open(recv_handle(connection), "w") as file:
        faulthandler.register(signal.SIGUSR1, file, all_threads=False)
        sessions.name_this_process(f"rank {os.environ['RANK']} of hpu_cards")
        connection.send(_answer(lambda: _begin(backend), Allowed()))
        while payload := connection.recv_bytes():
            connection.send(_answer(lambda payload=payload: _call(payload), allowed))


def _begin(backend: str | None) -> None:
    """Acquire this rank's card, like a script under torchrun."""
    import torch.distributed
    from habana_frameworks.torch.distributed import hccl

    hccl.initialize_distributed_hpu()
    torch.hpu.init()
    if backend is not None:
        torch.distributed.init_process_group(backend)


def _call(payload: bytes) -> Any:
    call = transfer.unpack(payload)
    return call["function"](*call["args"], **call["kwargs"])


def _answer(function: Any, allowed: Allowed) -> tuple[str, Any, Cost | None]:
    """Return a function's result or exception and, if there are limits, its cost."""
    costs: AbstractContextManager[Any] = nullcontext() if allowed.everything else Ledger()
    kind: str = "returned"
    content: Any = b""
    try:
        with costs as report:
            content = transfer.pack({"result": function()}, "cpu")
    except BaseException as error:  # noqa: BLE001 (the test raises it)
        kind, content = "raised", _raised(error)
    sys.stdout.flush()
    sys.stderr.flush()
    cost = None if allowed.everything else Cost.of(report, f"rank {os.environ['RANK']}")
    return kind, content, cost


def _raised(error: BaseException) -> tuple[bytes, str]:
    shown = traceback.TracebackException.from_exception(error)
    while shown.stack and shown.stack[0].filename == __file__:
        del shown.stack[0]
    text = "".join(shown.format())
    try:
        return transfer.pack({"error": error}, "cpu"), text
    except HPUError:
        return b"", text
