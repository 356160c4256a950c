"""Clicks that are answered while a cell runs.

A front end sends widget messages to a subshell of the kernel, but ipykernel 7.4
and newer hand a reply on a widget's channel to the shell that published on it
last: the main one, which is busy until the cell ends. ``answer_while_busy``
leaves such messages in the subshell they were sent to.

ipykernel 6 has no subshells: there, ``poll`` reads what waits for the main shell
from the training thread, and runs the clicks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["answer_while_busy", "poller"]


def _route_to_sender(data: Any, subshell_id: str | None) -> str | None:
    """Choose the shell for a message: the one the front end addressed."""
    return subshell_id


def answer_while_busy(widget: Any) -> None:
    """Let the front end's messages to ``widget`` be handled during a running cell."""
    comm = getattr(widget, "comm", None)
    if comm is not None and hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = _route_to_sender


def _kernel() -> Any | None:
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None)


def poller(widget: Any) -> Callable[[], None] | None:
    """Return a function that runs waiting clicks on ``widget``, or None where none is needed.

    It is to be called from the thread that runs the cell.
    """
    kernel = _kernel()
    if kernel is None or getattr(kernel, "_supports_kernel_subshells", False):
        return None
    stream, queue = getattr(kernel, "shell_stream", None), getattr(kernel, "msg_queue", None)
    if stream is None or queue is None or not hasattr(queue, "_queue"):
        return None
    main = threading.main_thread()

    def poll() -> None:
        if threading.current_thread() is main:
            _run_clicks(kernel, stream, queue, widget.comm.comm_id)

    return poll


def _run_clicks(kernel: Any, stream: Any, queue: Any, comm_id: str) -> None:
    """Handle the messages to one comm; everything else keeps its place in the queue."""
    import zmq

    stream.flush(zmq.POLLIN)
    for entry in list(queue._queue):
        *_, arguments = entry
        message = _comm_message(kernel, arguments, comm_id)
        if message is not None:
            queue._queue.remove(entry)
            kernel.comm_manager.comm_msg(stream, None, message)


def _comm_message(kernel: Any, arguments: Any, comm_id: str) -> dict[str, Any] | None:
    frames = arguments[-1] if arguments else None
    if not isinstance(frames, list):
        return None
    _, parts = kernel.session.feed_identities(frames, copy=False)
    # The signature is checked when the message is deserialised, and counts as seen from then on.
    header = kernel.session.unpack(parts[1].bytes)
    if header.get("msg_type") != "comm_msg":
        return None
    content = kernel.session.unpack(parts[4].bytes)
    if content.get("comm_id") != comm_id:
        return None
    return kernel.session.deserialize(parts, content=True, copy=False)
