"""Routes of the extension, all below ``hpu_magic/``.

``GET snapshot``
    A new sample: ``time``, ``source``, ``reason`` and ``cards``.
``GET history?since=T``
    The samples of the last 24 hours after T (seconds since the epoch) as columns, and the spans
    in which ``holders`` held cards.
``GET stream?interval=S`` (WebSocket)
    A message of type ``history``, then one of type ``snapshot`` per sample. The client sends
    ``{"type": "interval", "seconds": S}`` to change the interval.
``DELETE cards/CARD/holders/KERNEL``
    Shuts the kernel down: 204.
``DELETE cards/CARD/holders/KERNEL/fit``
    Stops the fit of the kernel after its batch: 202, or 504 if the kernel does not answer.

The last two return 404 if this server does not have the kernel or the machine the card, and 409 if
the kernel does not hold the card or refuses to stop.
"""

from __future__ import annotations

import asyncio
import json
import time
from math import isfinite, nan
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from hpu_magic.server.control import NoAnswer
from hpu_magic.server.kernels import Kernels
from hpu_magic.server.sampler import DEFAULT_INTERVAL, LONGEST, SHORTEST, Record, Sampler

RESOURCE = "hpu_magic"
"""What an authorizer is asked about when somebody wants to look at the cards."""

_REFUSED = 1008  # WebSocket close code: policy violation
_LINGER = 30.0  # seconds of sampling after a request, for those who ask again and again


class SnapshotHandler(APIHandler):
    """All cards of the machine and who holds them, now."""

    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, sampler: Sampler) -> None:
        """Take what the route carries."""
        self._sampler = sampler

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with a new snapshot, the same for all who ask at once."""
        record = await self._sampler.fresh()
        self._sampler.linger(_LINGER)
        self.finish(json.dumps(record))


class HistoryHandler(APIHandler):
    """The last day of all cards, and who held them."""

    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, sampler: Sampler) -> None:
        """Take what the route carries."""
        self._sampler = sampler

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with what came after ``since``, in seconds since the epoch."""
        text = self.get_argument("since", "0")
        try:
            since = float(text)
        except ValueError:
            since = nan
        if not isfinite(since):
            raise web.HTTPError(400, f"since is {text!r}; give seconds since the epoch.")
        answer = self._sampler.past.message(since, time.time())
        self.finish(json.dumps(answer, allow_nan=False, separators=(",", ":")))


class _HeldHandler(APIHandler):
    """What is done to a kernel that holds a card."""

    # It needs the permission to do that, not only to look at cards.
    auth_resource = "kernels"

    def initialize(self, sampler: Sampler, kernels: Kernels) -> None:
        """Take what the route carries."""
        self._sampler = sampler
        self._kernels = kernels

    async def _holders(self, number: str, kernel_id: str, nothing: str) -> list[Record]:
        """Return the kernel's processes that hold the card now; refuse where there are none.

        Parameters
        ----------
        number, kernel_id : str
            The card's module id, and the kernel's id.
        nothing : str
            What a refusal says of what was to be done: ``nothing was shut down``.
        """
        if kernel_id not in self._kernels:
            raise web.HTTPError(404, f"That kernel is none of this server's; {nothing}.")
        record = await self._sampler.fresh()
        card = next((card for card in record["cards"] if str(card["module_id"]) == number), None)
        if card is None:
            raise web.HTTPError(404, f"The machine has no HPU {number}.")
        holders = [
            holder for holder in card["holders"] if (holder["kernel"] or {}).get("id") == kernel_id
        ]
        if not holders:
            unknown = f" ({card['error']})" if card["error"] else ""
            raise web.HTTPError(
                409, f"That kernel does not hold HPU {number} now{unknown}; {nothing}."
            )
        return holders


class HolderHandler(_HeldHandler):
    """A kernel that holds a card."""

    @web.authenticated
    @authorized
    async def delete(self, number: str, kernel_id: str) -> None:
        """Shut down the kernel, if it is this server's and holds the card now."""
        await self._holders(number, kernel_id, "nothing was shut down")
        await self._kernels.shut_down(kernel_id)
        await self._sampler.fresh()
        self.set_status(204)
        self.finish()


class FitHandler(_HeldHandler):
    """The fit of a kernel that holds a card."""

    @web.authenticated
    @authorized
    async def delete(self, number: str, kernel_id: str) -> None:
        """Press Stop: the fit ends after its batch, and the cell goes on behind it."""
        holders = await self._holders(number, kernel_id, "nothing was stopped")
        fitting = [holder["pid"] for holder in holders if holder["fit"]]
        if not fitting:
            raise web.HTTPError(409, "That kernel runs no fit now; nothing was stopped.")
        try:
            refusal = await self._kernels.stop_fit(kernel_id, fitting[0])
        except NoAnswer as missing:
            raise web.HTTPError(
                504,
                f"The kernel was asked to stop its fit, but {missing}. It may still come to it; "
                "else interrupt the kernel.",
            ) from None
        if refusal is not None:
            raise web.HTTPError(409, refusal)
        # It ends in its own time.
        self.set_status(202)
        self.finish()


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Every sample as it is taken, after those that are remembered."""

    auth_resource = RESOURCE

    def initialize(self, sampler: Sampler) -> None:
        """Take what the route carries."""
        self._sampler = sampler
        self._sending: asyncio.Future[None] | None = None

    @ws_authenticated
    @authorized(action="read")
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Become a WebSocket."""
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> None:
        """Send what is remembered and begin to listen."""
        super().open(*args, **kwargs)
        text = self.get_argument("interval", None)
        interval = DEFAULT_INTERVAL if text is None else _seconds(text)
        if interval is None:
            self._refuse()
            return
        for message in self._sampler.greeting(interval):
            self._write(message)
        self._sampler.subscribe(self._send, interval)

    def on_message(self, message: str | bytes) -> None:
        """Take the client's interval."""
        try:
            request = json.loads(message)
        except (ValueError, RecursionError):
            request = None
        interval = None
        if isinstance(request, dict) and request.get("type") == "interval":
            seconds = request.get("seconds")
            # JSON's true is an int in Python.
            if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
                interval = _seconds(seconds)
        if interval is None:
            self._refuse()
        else:
            self._sampler.subscribe(self._send, interval)

    def on_close(self) -> None:
        """Listen no more."""
        self._sampler.unsubscribe(self._send)
        super().on_close()

    def _refuse(self) -> None:
        self._sampler.unsubscribe(self._send)
        self.close(_REFUSED, f"Send an interval of {SHORTEST:g} to {LONGEST:g} seconds.")

    def _send(self, message: bytes) -> None:
        # A client that is behind misses samples; they must not wait for it in memory.
        if self._sending is None or self._sending.done():
            self._write(message)

    def _write(self, message: bytes) -> None:
        try:
            self._sending = self.write_message(message)
        except WebSocketClosedError:
            self._sampler.unsubscribe(self._send)
        else:
            # A connection that breaks amid a message is told by `on_close`.
            self._sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())


def _seconds(value: str | float) -> float | None:
    """Return the interval if it is one that a client may ask for, else None."""
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if SHORTEST <= seconds <= LONGEST else None


def routes(sampler: Sampler, kernels: Kernels) -> list[tuple[str, type, dict[str, Any]]]:
    """Return every route of the extension, as `ExtensionApp.handlers` takes them."""
    looks = {"sampler": sampler}
    return [
        ("/hpu_magic/snapshot", SnapshotHandler, looks),
        ("/hpu_magic/history", HistoryHandler, looks),
        ("/hpu_magic/stream", StreamHandler, looks),
        (
            r"/hpu_magic/cards/([0-9]{1,4})/holders/([\w-]+)",
            HolderHandler,
            {**looks, "kernels": kernels},
        ),
        (
            r"/hpu_magic/cards/([0-9]{1,4})/holders/([\w-]+)/fit",
            FitHandler,
            {**looks, "kernels": kernels},
        ),
    ]
