"""Settings that outlive a kernel, and the restart that lets them take effect.

Settings are remembered for the notebook: by its path, which the Jupyter server puts into
``JPY_SESSION_NAME``, else by the kernel's id, which a restart keeps, else (a terminal) by the
working directory.

The restart is asked of the Jupyter server that started the kernel, as its own *Restart* button
does; a process that ended itself would be reported as a dead kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpu_magic.runtime.errors import RefusedError

BY_HAND = "restart the kernel by hand (in JupyterLab: Kernel, Restart); the setting is remembered."

_DELAY = 0.5  # seconds

_interactive = False
_kernel_id: str | None = None


class RestartUnavailableError(RefusedError):
    """The kernel cannot be restarted from within."""


def attach(connection_file: str | None) -> None:
    """Say that this process is interactive, and by which connection file its kernel is reached.

    Parameters
    ----------
    connection_file : str or None
        ``kernel-<id>.json``, or None in a terminal.
    """
    global _interactive, _kernel_id
    _interactive = True
    found = re.match(r"kernel-(.+)\.json$", os.path.basename(connection_file or ""))
    _kernel_id = found[1] if found else None


def interactive() -> bool:
    """Tell whether there is a notebook or terminal session to remember settings for."""
    return _interactive


def remember(environment: Mapping[str, str | None]) -> None:
    """Keep environment variables for this notebook's next start; None forgets one.

    Scripts have nothing to remember for: nothing happens there.
    """
    if not interactive():
        return
    kept: dict[str, str] = {**recall()}
    for name, value in environment.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
        json.dump({"for": _session(), "environment": kept}, new, indent=2)
    os.replace(new.name, path)


def recall() -> dict[str, str]:
    """Return the environment variables remembered for this notebook."""
    try:
        stored = json.loads(_file().read_text())
        return {str(name): str(value) for name, value in stored["environment"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        # Not written by this version: as good as nothing, and replaced at the next `remember`.
        return {}


def apply() -> dict[str, str]:
    """Set the remembered variables in this process and return them.

    Nothing is set, and nothing returned, once the vendor's library is loaded: it has read them.
    """
    from hpu_magic.runtime.device import bridge_loaded

    if bridge_loaded() or not interactive():
        return {}
    remembered = recall()
    os.environ.update(remembered)
    return remembered


def restart_kernel(kernel_id: str | None = None) -> None:
    """Ask the Jupyter server to restart this kernel; returns before it happens.

    Parameters
    ----------
    kernel_id : str or None
        The kernel to restart; by default the one given to `attach`.

    Raises
    ------
    RestartUnavailableError
        There is no server that would do it; the text says to restart by hand.
    """
    kernel_id = kernel_id or _kernel_id
    server = _server()
    if kernel_id is None or server is None:
        raise RestartUnavailableError(f"No Jupyter server started this kernel: {BY_HAND}")
    try:
        _ask(server, "GET", kernel_id)
    except (OSError, ValueError) as error:
        raise RestartUnavailableError(
            f"The Jupyter server at {server['url']} refused ({error}): {BY_HAND}"
        ) from error
    # The server ends this process before it answers, so it is asked from a thread, and after a
    # moment in which the cell can end and what it displays can leave.
    request = threading.Timer(_DELAY, _ask, args=(server, "POST", f"{kernel_id}/restart"))
    request.daemon = True  # it would keep this process from ending, which it waits for
    request.start()


def _session() -> str:
    name = os.environ.get("JPY_SESSION_NAME")
    if name:
        return name
    return f"kernel {_kernel_id}" if _kernel_id else f"terminal in {os.getcwd()}"


def _file() -> Path:
    from jupyter_core.paths import jupyter_data_dir

    digest = hashlib.sha256(_session().encode()).hexdigest()[:32]
    return Path(jupyter_data_dir()) / "hpu_magic" / f"{digest}.json"


def _server() -> dict[str, Any] | None:
    """Return the address and token of the Jupyter server that is this process's parent."""
    from jupyter_core.paths import jupyter_runtime_dir

    parent = os.environ.get("JPY_PARENT_PID", "")
    try:
        found = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and str(found.get("pid")) == parent else None


def _ask(server: Mapping[str, Any], method: str, path: str) -> None:
    import urllib.request  # here, as loading the extension must be instant

    request = urllib.request.Request(f"{server['url']}api/kernels/{path}", method=method)
    # Behind JupyterHub the server has no token of its own and accepts the user's.
    token = server.get("token") or os.environ.get("JUPYTERHUB_API_TOKEN")
    if token:
        request.add_header("Authorization", f"token {token}")
    # The server is this process's parent: a proxy has no part in reaching it.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as answer:
        answer.read()
