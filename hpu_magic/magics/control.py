"""Handle requests that front ends send on a kernel's control channel.

ipykernel calls the handlers in its control thread, even while a cell is running, so they must not
use the user's namespace or standard output.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpu_magic import sessions

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

Content = Mapping[str, Any]


def status(request: Content) -> dict[str, Any]:
    """Reply with the version, mode, card, memory and fit of this process."""
    from hpu_magic.runtime.execution.facts import facts

    fit = sessions.own_fit()
    return {"status": "ok", **asdict(facts()), "fit": fit and fit.as_record()}


def choose_mode(request: Content) -> dict[str, Any]:
    """Request a mode, as ``%hpu_mode`` does."""
    from hpu_magic.errors import HPUError
    from hpu_magic.runtime.execution.mode import request as request_mode

    try:
        report = request_mode(str(request.get("mode")))
    except HPUError as refused:
        return {"status": "error", "message": str(refused)}
    except OSError as error:
        return {"status": "error", "message": f"The mode could not be stored: {error}."}
    return {
        "status": "ok",
        "loaded": report.loaded,
        "requested": report.requested,
        "needs_restart": report.needs_restart,
    }


def stop_fit(request: Content) -> dict[str, Any]:
    """Stop the fit of this process."""
    # Another process that the kernel started may hold the card.
    if request.get("pid") != os.getpid():
        message = "That fit runs in a process that the kernel started: stop it there."
        return {"status": "error", "message": message}
    if sessions.stop_fit() is None:
        return {
            "status": "error",
            "message": "That kernel is not running a fit; nothing was stopped.",
        }
    return {"status": "ok"}


def outputs(request: Content) -> dict[str, Any]:
    """Reply with the current contents of the outputs that a page requests."""
    from hpu_magic.panels import outputs

    wanted = request.get("outputs")
    known = {
        str(name): revision
        for name, revision in (wanted.items() if isinstance(wanted, Mapping) else ())
        if isinstance(revision, int)
    }
    return {"status": "ok", **outputs.current_outputs(known)}


_ANSWERS: dict[str, Callable[[Content], dict[str, Any]]] = {
    "hpu_magic_status": status,
    "hpu_magic_mode": choose_mode,
    "hpu_magic_stop": stop_fit,
    "hpu_magic_outputs": outputs,
}


def enable(shell: InteractiveShell) -> None:
    """Add the handlers to the shell's kernel; in a terminal, there is no kernel."""
    kernel = getattr(shell, "kernel", None)
    handlers = getattr(kernel, "control_handlers", None)
    if handlers is not None:
        for name, answer in _ANSWERS.items():
            handlers[f"{name}_request"] = _handler(kernel, f"{name}_reply", answer)


def disable(shell: InteractiveShell) -> None:
    """Remove the handlers."""
    handlers = getattr(getattr(shell, "kernel", None), "control_handlers", {})
    for name in _ANSWERS:
        handlers.pop(f"{name}_request", None)


def restore_mode(stored: str) -> None:
    """Request the mode that is stored in the notebook's metadata.

    A front end calls this before it runs the first cell. The function does not import the extension
    or torch, and does not print anything.
    """
    from IPython.core.getipython import get_ipython

    from hpu_magic.magics import connection_file
    from hpu_magic.runtime.execution import mode
    from hpu_magic.runtime.start import restart

    shell = get_ipython()
    if shell is not None:
        restart.identify(connection_file(shell))
        mode.restore(stored)


def _handler(
    kernel: Any, reply: str, answer: Callable[[Content], dict[str, Any]]
) -> Callable[[Any, Any, Mapping[str, Any]], None]:
    def handle(stream: Any, ident: Any, parent: Mapping[str, Any]) -> None:
        if kernel.session is not None:
            kernel.session.send(stream, reply, answer(parent["content"]), parent, ident)

    return handle
