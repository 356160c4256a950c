"""Answer requests while a cell is running, so that users can click in panels and reload the page.

While a cell is running, a kernel only handles messages to a subshell on its shell channel. A page
that is loading cannot use subshells yet: the reply to its first request announces them, but the
page requests the state of all widgets before it has that reply. Therefore, while a panel is shown
and a cell is running, requests from a loading page and messages to the panel are handled
immediately: by the thread that receives the kernel's messages or, if there is no such thread
(ipykernel before 7), by the training thread when it calls ``poll``.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

_WIDGET_STATES = "jupyter.widget.control"
_REQUESTS = ("kernel_info_request", "comm_info_request")


class PanelListener:
    """Handles messages to the widgets of a panel while cells run, until the panel is closed."""

    def __init__(self, comms: Collection[str]) -> None:
        from IPython.core.getipython import get_ipython

        self.comms = frozenset(comms)
        shell = get_ipython()
        kernel = getattr(shell, "kernel", None)
        self._channel: _ShellChannel | None = None
        if kernel is not None:
            self._channel = _channels.setdefault(kernel, _ShellChannel(shell, kernel))
            self._channel.open(self)

    @property
    def poll(self) -> Callable[[], None] | None:
        """The function that the training thread must call; None if the kernel does not need it."""
        return None if self._channel is None else self._channel.poll

    def close(self) -> None:
        """Let the kernel handle the panel's messages again."""
        if self._channel is not None:
            self._channel.close(self)


class _ShellChannel:
    """A kernel's shell channel, shared by all of its panels."""

    def __init__(self, shell: Any, kernel: Any) -> None:
        self._shell = shell
        self._kernel = kernel
        self._threaded = bool(getattr(kernel, "_supports_kernel_subshells", False))
        self._open: list[PanelListener] = []
        self._states: set[str] = set()
        queued = hasattr(getattr(kernel, "msg_queue", None), "_queue")
        self.poll = self._poll if queued and not self._threaded else None

    def open(self, listener: PanelListener) -> None:
        if not self._open and self._threaded:
            self._listen(self._receive)
        self._open.append(listener)

    def close(self, listener: PanelListener) -> None:
        if listener in self._open:
            self._open.remove(listener)
            if not self._open and self._threaded:
                self._listen(self._kernel.shell_channel_thread_main)

    def _listen(self, receive: Callable[[Any], Any]) -> None:
        stream = self._kernel.shell_stream
        thread = self._kernel.shell_channel_thread
        thread.io_loop.add_callback(lambda: stream.on_recv(receive, copy=False))

    async def _receive(self, frames: Any) -> None:
        """Answer a message or pass it to the kernel; runs in the thread that receives messages."""
        if not self._running() or not await self._answered(frames):
            await self._kernel.shell_channel_thread_main(frames)

    def _poll(self) -> None:
        """Answer the panels' messages in the kernel's queue; other messages keep their order."""
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
                and _run_without_waiting(self._answered(arguments[-1]))
            ):
                queue.remove(entry)
        self._kernel.shell_stream.flush(zmq.POLLOUT)

    def _running(self) -> bool:
        """Return whether a cell is running, even a cell that runs other cells."""
        if not self._threaded:
            return True  # only a running cell calls `poll`
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
            # The session verifies the message's signature and marks it as used.
            message = kernel.session.deserialize(parts, content=True, copy=False)
        except (ValueError, LookupError, TypeError, AttributeError):
            return False  # the kernel reports the error
        kernel._publish_status("busy", "shell", parent=message)
        try:
            with _replying_to(kernel, identities, message):
                answer = kernel.shell_handlers[header["msg_type"]](
                    kernel.shell_stream, identities, message
                )
                if hasattr(answer, "__await__"):
                    await answer
        except Exception:  # a widget's code may raise any exception
            kernel.log.exception("Exception in message handler:")
        # "idle" completes the message although the cell is still running. The last status must be
        # the kernel's actual status, even if the cell ends or another cell begins.
        published = None
        while published != (state := "busy" if published and self._running() else "idle"):
            kernel._publish_status(state, "shell", parent=message)
            published = state
        if message["msg_type"] == "comm_open":
            self._states.add(content["comm_id"])
        return True

    def _ours(self, kind: str, content: Any) -> bool:
        if kind == "comm_open":
            return bool(content["target_name"] == _WIDGET_STATES)
        if kind in ("comm_msg", "comm_close"):
            comm = content["comm_id"]
            # If the reply to a page's first request is late, the page requests the state of all
            # widgets, including those of other cells, and shows none of them until all states have
            # arrived.
            is_request = content.get("data", {}).get("method") == "request_state"
            is_panel = any(comm in listener.comms for listener in self._open)
            return is_request or comm in self._states or is_panel
        return kind in _REQUESTS


_channels: WeakKeyDictionary[Any, _ShellChannel] = WeakKeyDictionary()


@contextlib.contextmanager
def _replying_to(kernel: Any, identities: Any, message: Any) -> Iterator[None]:
    """Let widgets send their messages as replies to a message, not to the running cell.

    A page ignores a widget's state if it is not a reply to its request.
    """
    parent = getattr(kernel, "_shell_parent", None)
    if isinstance(parent, ContextVar):
        identity = kernel._shell_parent_ident
        tokens = parent.set(message), identity.set(identities)
        try:
            yield
        finally:
            parent.reset(tokens[0])
            identity.reset(tokens[1])
        return
    # ipykernel before 7
    before = kernel._parents["shell"], kernel._parent_ident["shell"]
    kernel._parents["shell"], kernel._parent_ident["shell"] = message, identities
    try:
        yield
    finally:
        kernel._parents["shell"], kernel._parent_ident["shell"] = before


def _run_without_waiting(coroutine: Any) -> bool:
    """Run a coroutine and return its value, or False if it would have to wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return bool(done.value)
    coroutine.close()
    return False
