"""Pages that are heard while a cell runs: clicks on a panel, and a reload of the page.

A kernel answers nothing on its shell channel until the running cell ends, save what a page
addresses to a subshell. A page that has just been loaded cannot: it learns that there are
subshells from the answer to its first question, and asks for the state of all widgets before it
has one. So while a panel is shown and a cell runs, what a page asks as it loads, and what it sends
to the panel, is answered at once: by the thread that takes the kernel's messages in, or, where
ipykernel has none (before 7), by the training whenever it calls ``poll``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any
from weakref import WeakKeyDictionary

_WIDGET_STATES = "jupyter.widget.control"
_QUESTIONS = ("kernel_info_request", "comm_info_request")


class Hearing:
    """Answers pages while cells run, for one panel, until it is closed.

    Parameters
    ----------
    comms
        The ids of the comms of the panel's widgets.
    """

    def __init__(self, comms: Collection[str]) -> None:
        from IPython.core.getipython import get_ipython

        self.comms = frozenset(comms)
        shell = get_ipython()
        kernel = getattr(shell, "kernel", None)
        self._ear: _Ear | None = None
        if kernel is not None:
            self._ear = _ears.setdefault(kernel, _Ear(shell, kernel))
            self._ear.open(self)

    @property
    def poll(self) -> Callable[[], None] | None:
        """To be called from the training thread; None where the kernel hears without it."""
        return None if self._ear is None else self._ear.poll

    def close(self) -> None:
        """Leave the panel's messages to the kernel again."""
        if self._ear is not None:
            self._ear.close(self)


class _Ear:
    """The one way into a kernel for all of its panels."""

    def __init__(self, shell: Any, kernel: Any) -> None:
        self._shell = shell
        self._kernel = kernel
        self._threaded = bool(getattr(kernel, "_supports_kernel_subshells", False))
        self._open: list[Hearing] = []
        self._states: set[str] = set()
        queued = hasattr(getattr(kernel, "msg_queue", None), "_queue")
        self.poll = self._poll if queued and not self._threaded else None

    def open(self, hearing: Hearing) -> None:
        if not self._open and self._threaded:
            self._listen(self._take)
        self._open.append(hearing)

    def close(self, hearing: Hearing) -> None:
        if hearing in self._open:
            self._open.remove(hearing)
            if not self._open and self._threaded:
                self._listen(self._kernel.shell_channel_thread_main)

    def _listen(self, take: Callable[[Any], Any]) -> None:
        stream = self._kernel.shell_stream
        thread = self._kernel.shell_channel_thread
        thread.io_loop.add_callback(lambda: stream.on_recv(take, copy=False))

    async def _take(self, frames: Any) -> None:
        """Answer a message, or pass it on; runs in the thread that takes them in."""
        if not self._running() or not await self._answered(frames):
            await self._kernel.shell_channel_thread_main(frames)

    def _poll(self) -> None:
        """Answer what waits in the kernel's queue; everything else keeps its place."""
        import zmq

        if threading.current_thread() is not threading.main_thread():
            return
        self._kernel.shell_stream.flush(zmq.POLLIN)
        queue = self._kernel.msg_queue._queue
        for entry in list(queue):
            *_, arguments = entry
            if (
                arguments
                and isinstance(arguments[-1], list)
                and _ended(self._answered(arguments[-1]))
            ):
                queue.remove(entry)
        self._kernel.shell_stream.flush(zmq.POLLOUT)

    def _running(self) -> bool:
        """Whether the kernel is at work; a cell that has called others is, as they end."""
        lock = getattr(self._kernel, "_main_asyncio_lock", None)
        if lock is not None:
            return bool(lock.locked())
        return getattr(self._shell.displayhook, "exec_result", None) is not None

    async def _answered(self, frames: Any) -> bool:
        kernel = self._kernel
        try:
            identities, parts = kernel.session.feed_identities(frames, copy=False)
            header, content = (kernel.session.unpack(parts[at].bytes) for at in (1, 4))
            if not self._ours(header["msg_type"], content):
                return False
            # The signature is checked here, and counts as seen from now on.
            message = kernel.session.deserialize(parts, content=True, copy=False)
        except (ValueError, LookupError, TypeError, AttributeError):
            return False  # the kernel says what is wrong with it
        kernel._publish_status("busy", "shell", parent=message)
        try:
            answer = kernel.shell_handlers[header["msg_type"]](
                kernel.shell_stream, identities, message
            )
            if hasattr(answer, "__await__"):
                await answer
        except Exception:  # as the kernel does with whatever a widget's own code raises
            kernel.log.exception("Exception in message handler:")
        # A message is done with once the kernel is idle, but the cell that runs is not: the last
        # word is what the kernel really does, even as that cell ends or another begins.
        told = None
        while told != (state := "busy" if told and self._running() else "idle"):
            kernel._publish_status(state, "shell", parent=message)
            told = state
        if message["msg_type"] == "comm_open":
            self._states.add(content["comm_id"])
        return True

    def _ours(self, kind: str, content: Any) -> bool:
        if kind == "comm_open":
            return bool(content["target_name"] == _WIDGET_STATES)
        if kind in ("comm_msg", "comm_close"):
            comm = content["comm_id"]
            # A page whose first question was answered late asks every widget for its state, and
            # shows none before all have answered: those of other cells, too.
            asks = content.get("data", {}).get("method") == "request_state"
            return asks or comm in self._states or any(comm in one.comms for one in self._open)
        return kind in _QUESTIONS


_ears: WeakKeyDictionary[Any, _Ear] = WeakKeyDictionary()


def _ended(answering: Any) -> bool:
    """Run a coroutine that waits for nothing."""
    try:
        answering.send(None)
    except StopIteration as done:
        return bool(done.value)
    answering.close()
    return False
