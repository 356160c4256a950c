"""Serve a model with vLLM."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpu_magic.serving.report import ServerReport


def serve(
    model: str | None = None,
    *options: str,
    port: int = 8000,
    cards: int = 1,
    timeout: float = 1800.0,
) -> ServerReport:
    """Serve a model on free cards with vLLM and its Gaudi plugin, or show or stop the server.

    The server is a child process with an OpenAI-compatible API, which only this machine can reach.
    In a notebook, a live panel shows its requests, its speed and its caches. The server ends with
    the notebook's process.

    Parameters
    ----------
    model : str, optional
        Name or folder of the model to serve, or ``off`` to stop the server.
    *options : str
        Further options of ``vllm serve``.
    port : int
        TCP port of the server; 0 selects a free one.
    cards : int
        Number of free cards to use, by tensor parallelism.
    timeout : float
        Seconds to wait until the server is ready.

    Returns
    -------
    ServerReport
        The address of the server and its newest values.

    Raises
    ------
    HPUError
        vLLM is not installed, an argument is invalid, too few cards are free, or the server did not
        start.
    """
    from hpu_magic.errors import HPUError
    from hpu_magic.serving import session

    if model is None:
        return session.report()
    if model == "off":
        return session.stop()
    if missing := [name for name in ("vllm", "vllm_gaudi") if find_spec(name) is None]:
        raise HPUError(
            f"%hpu_serve needs vLLM with its Gaudi plugin, but {missing[0]} is not installed: "
            "install vllm and vllm_gaudi in this environment."
        )
    return session.start(model, options, port, cards, timeout)
