"""Questions to kernels over the control channel, which they answer while a cell runs."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from typing import Any

import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.session import Session

PATIENCE = 5.0
"""Seconds that a kernel has for its answer."""


class NoAnswer(Exception):
    """The kernel did not answer in time."""


async def ask(kernel: Any, what: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send ``hpu_magic_WHAT_request`` to a kernel and return the content of its reply.

    Parameters
    ----------
    kernel : jupyter_client.KernelManager
        The manager of the kernel.
    what : str
        A name under which `hpu_magic.magics.control` answers.
    content : mapping
        What is asked.

    Raises
    ------
    NoAnswer
        The kernel is stuck, or does not know the question.
    """
    # With an identity of its own: of two sockets with one, the kernel hears the later only.
    session = Session(key=kernel.session.key, signature_scheme=kernel.session.signature_scheme)
    place = {**kernel.get_connection_info(session=True), "session": session}
    # Keys for encryption, where there are any, are text in the connection file alone.
    place |= {name: value.encode() for name, value in place.items() if _is_curve_key(name, value)}
    client = AsyncKernelClient(**place, context=zmq.asyncio.Context.instance())
    channel = client.control_channel
    channel.start()
    try:
        channel.send(session.msg(f"hpu_magic_{what}_request", dict(content)))
        reply: dict[str, Any] = await channel.get_msg(timeout=PATIENCE)
    except queue.Empty:
        raise NoAnswer(f"it did not answer within {PATIENCE:g} s") from None
    finally:
        channel.stop()
    return dict(reply["content"])


def _is_curve_key(name: str, value: object) -> bool:
    return name.startswith("curve_") and isinstance(value, str)
