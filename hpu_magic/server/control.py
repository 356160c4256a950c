"""Requests to kernels over the control channel, which kernels answer even while a cell runs."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any

import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.session import Session

from hpu_magic.errors import HPUError

PATIENCE = 5.0
"""Number of seconds to wait for a kernel's answer."""


class NoAnswerError(HPUError):
    """Raised if a kernel does not answer in time."""


async def request(kernel: Any, topic: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send ``hpu_magic_TOPIC_request`` to a kernel and return the content of its reply.

    `kernel` is the kernel's KernelManager; `hpu_magic.magics.control` handles the topics. Raises
    NoAnswerError if the kernel hangs or does not support the request.
    """
    # Create a session with a new identity. If two sockets had the same identity, only the newer one
    # would work.
    session = Session(key=kernel.session.key, signature_scheme=kernel.session.signature_scheme)
    place = {**kernel.get_connection_info(session=True), "session": session}
    # The connection file contains encryption keys as text, but the client requires bytes.
    place |= {name: value.encode() for name, value in place.items() if _is_curve_key(name, value)}
    client = AsyncKernelClient(**place, context=zmq.asyncio.Context.instance())
    channel = client.control_channel
    channel.start()
    try:
        channel.send(session.msg(f"hpu_magic_{topic}_request", dict(content)))
        reply: dict[str, Any] = await channel.get_msg(timeout=PATIENCE)
    except queue.Empty:
        raise NoAnswerError(f"it did not answer within {PATIENCE:g} s") from None
    finally:
        channel.stop()
    return dict(reply["content"])


def _is_curve_key(name: str, value: object) -> bool:
    return name.startswith("curve_") and isinstance(value, str)
