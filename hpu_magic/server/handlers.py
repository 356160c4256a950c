"""The routes of the extension, all of which start with ``hpu_magic/``.

``GET snapshot``
    Returns a new sample with ``time``, ``source``, ``reason`` and ``cards``.
``GET history?since=T``
    Returns the samples of the last 24 hours that were taken after T (seconds since the epoch) as
    columns, and the time spans during which ``holders`` held cards.
``GET stream?interval=S`` (WebSocket)
    Sends one message of type ``history``, then one message of type ``snapshot`` per sample. The
    client can send ``{"type": "interval", "seconds": S}`` to change the interval.
``DELETE cards/CARD/holders/KERNEL``
    Shuts down the kernel and returns 204.
``DELETE cards/CARD/holders/KERNEL/fit``
    Stops the kernel's fit after the current batch and returns 202, or 504 if the kernel does not
    answer.

The last two routes return 404 if the kernel does not belong to this server or if the machine has no
such card. The status is 409 if the kernel does not hold the card or refuses to stop.
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

from hpu_magic.server.control import NoAnswerError
from hpu_magic.server.kernels import Kernels
from hpu_magic.server.sampler import DEFAULT_INTERVAL, LONGEST, SHORTEST, CardSampler, Record

RESOURCE = "hpu_magic"
"""The resource name with which an authorizer controls access to the cards."""

_REFUSED = 1008  # WebSocket close code: policy violation
_LINGER = 30.0  # seconds to keep sampling after a request, for clients that poll


class _CardsHandler(APIHandler):
    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, sampler: CardSampler) -> None:
        """Store the arguments of the route."""
        self._sampler = sampler


class SnapshotHandler(_CardsHandler):
    """A new sample of all cards and their holders."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return a new snapshot; concurrent requests share the same snapshot."""
        record = await self._sampler.fresh()
        self._sampler.linger(_LINGER)
        self.finish(json.dumps(record))


class HistoryHandler(_CardsHandler):
    """Samples and holders of all cards in the last 24 hours."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Return the samples taken after ``since``, which is in seconds since the epoch."""
        text = self.get_argument("since", "0")
        try:
            since = float(text)
        except ValueError:
            since = nan
        if not isfinite(since):
            raise web.HTTPError(400, f"since is {text!r}; pass seconds since the epoch.")
        answer = self._sampler.past.message(since, time.time())
        self.finish(json.dumps(answer, allow_nan=False, separators=(",", ":")))


class _HeldHandler(APIHandler):
    """An action on a kernel that holds a card."""

    # The action requires permission for kernels, not just for the cards.
    auth_resource = "kernels"

    def initialize(self, sampler: CardSampler, kernels: Kernels) -> None:
        """Store the arguments of the route."""
        self._sampler = sampler
        self._kernels = kernels

    async def _holders(self, number: str, kernel_id: str, outcome: str) -> list[Record]:
        """Return the kernel's processes that hold the card; raise an HTTP error if there are none.

        `outcome` is the end of the error message, such as ``nothing was shut down``.
        """
        if kernel_id not in self._kernels:
            raise web.HTTPError(404, f"That kernel does not belong to this server; {outcome}.")
        record = await self._sampler.fresh()
        card = next((card for card in record["cards"] if str(card["module_id"]) == number), None)
        if card is None:
            raise web.HTTPError(404, f"The machine has no HPU {number}.")
        holders = [
            holder for holder in card["holders"] if (holder["kernel"] or {}).get("id") == kernel_id
        ]
        if not holders:
            unknown = f" ({card['error']})" if card["error"] else ""
            raise web.HTTPError(409, f"That kernel does not hold HPU {number}{unknown}; {outcome}.")
        return holders


class HolderHandler(_HeldHandler):
    """A kernel that holds a card."""

    @web.authenticated
    @authorized
    async def delete(self, number: str, kernel_id: str) -> None:
        """Shut down the kernel if it belongs to this server and holds the card."""
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
        """Stop the fit after its current batch; the cell then continues."""
        holders = await self._holders(number, kernel_id, "nothing was stopped")
        fitting = [holder["pid"] for holder in holders if holder["fit"]]
        if not fitting:
            raise web.HTTPError(409, "That kernel is not running a fit; nothing was stopped.")
        try:
            refusal = await self._kernels.stop_fit(kernel_id, fitting[0])
        except NoAnswerError as error:
            raise web.HTTPError(
                504,
                f"The kernel received the request to stop its fit, but {error}; interrupt the "
                "kernel if the fit does not stop.",
            ) from None
        if refusal is not None:
            raise web.HTTPError(409, refusal)
        # The request was accepted, but the fit stops only after its current batch.
        self.set_status(202)
        self.finish()


class StreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """A WebSocket that sends the history and then each new sample."""

    auth_resource = RESOURCE

    def initialize(self, sampler: CardSampler) -> None:
        """Store the arguments of the route."""
        self._sampler = sampler
        self._sending: asyncio.Future[None] | None = None

    @ws_authenticated
    @authorized(action="read")
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Open the WebSocket."""
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> None:
        """Send the history and subscribe to samples."""
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
        """Set the interval requested by the client."""
        try:
            request = json.loads(message)
        except (ValueError, RecursionError):
            request = None
        interval = None
        if isinstance(request, dict) and request.get("type") == "interval":
            seconds = request.get("seconds")
            # JSON's true becomes a bool, which is an int in Python.
            if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
                interval = _seconds(seconds)
        if interval is None:
            self._refuse()
        else:
            self._sampler.subscribe(self._send, interval)

    def on_close(self) -> None:
        """Unsubscribe from samples."""
        self._sampler.unsubscribe(self._send)
        super().on_close()

    def _refuse(self) -> None:
        self._sampler.unsubscribe(self._send)
        self.close(_REFUSED, f"Send an interval of {SHORTEST:g} to {LONGEST:g} seconds.")

    def _send(self, message: bytes) -> None:
        # Slow clients miss samples, so that messages do not accumulate in memory.
        if self._sending is None or self._sending.done():
            self._write(message)

    def _write(self, message: bytes) -> None:
        try:
            self._sending = self.write_message(message)
        except WebSocketClosedError:
            self._sampler.unsubscribe(self._send)
        else:
            # If the connection is lost while a message is being sent, `on_close` handles that.
            self._sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())


def _seconds(value: str | float) -> float | None:
    """Return the interval in seconds if it is within the allowed range, otherwise None."""
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if SHORTEST <= seconds <= LONGEST else None


def routes(sampler: CardSampler, kernels: Kernels) -> list[tuple[str, type, dict[str, Any]]]:
    """Return all routes of the extension, for use in `ExtensionApp.handlers`."""
    common = {"sampler": sampler}
    return [
        ("/hpu_magic/snapshot", SnapshotHandler, common),
        ("/hpu_magic/history", HistoryHandler, common),
        ("/hpu_magic/stream", StreamHandler, common),
        (
            r"/hpu_magic/cards/([0-9]{1,4})/holders/([\w-]+)",
            HolderHandler,
            {**common, "kernels": kernels},
        ),
        (
            r"/hpu_magic/cards/([0-9]{1,4})/holders/([\w-]+)/fit",
            FitHandler,
            {**common, "kernels": kernels},
        ),
    ]
