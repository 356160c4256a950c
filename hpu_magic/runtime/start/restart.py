"""Store settings that survive a kernel restart, and restart the kernel to apply them.

Settings are stored per notebook. A notebook is identified by its path, which the Jupyter server
stores in ``JPY_SESSION_NAME``, or by the kernel's id, which does not change on restart. In a
terminal, settings are stored per working directory. In a notebook, stored settings override the
environment, which comes from the server. In a terminal, the environment overrides stored settings,
because the user has set it for this session.

The kernel is restarted by the Jupyter server that started it, as with the *Restart* button. A
process that exited on its own would be reported as a dead kernel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpu_magic.errors import HPUError

_BY_HAND = "restart the kernel manually (in JupyterLab: Kernel, Restart)."
_IN_TERMINAL = "end this session and start a new one."
REMEMBERED = "The setting is remembered."

_DELAY = 0.5  # seconds
_NOTEBOOKS_KEPT = 500

_interactive = False
_kernel_id: str | None = None
# Values that have no effect. In a notebook, these are values from the environment, replaced by
# stored ones. In a terminal, these are stored values, overridden by the environment.
_replaced: dict[str, str] = {}
_overruled: dict[str, str] = {}
# Stored settings are written both by cells and by the kernel's control thread.
_writing = threading.Lock()


class RestartUnavailableError(HPUError):
    """The kernel cannot be restarted from inside this process."""


def attach(connection_file: str | None) -> None:
    """Mark this process as interactive, and store the kernel's id from its connection file.

    The file is named ``kernel-<id>.json``. In a terminal, ``connection_file`` is None.
    """
    global _interactive
    _interactive = True
    _overruled.clear()
    identify(connection_file)


def identify(connection_file: str | None) -> None:
    """Store the kernel's id, which is part of the name of its connection file."""
    global _kernel_id
    match = re.match(r"kernel-(.+)\.json$", os.path.basename(connection_file or ""))
    _kernel_id = match[1] if match else None


def interactive() -> bool:
    """Return whether this is a notebook or terminal session, in which settings are stored."""
    return _interactive


def available() -> bool:
    """Return whether there is a Jupyter server that `restart_kernel` can call."""
    return _kernel_id is not None and _server() is not None


def how(command: str) -> str:
    """Return how to restart: with a command's ``--restart`` or, without a server, manually."""
    return f"type {command} --restart (variables will be lost)." if available() else by_hand()


def place() -> str:
    """Return the scope of the stored settings, ``notebook`` or ``folder``."""
    return "folder" if _in_terminal() else "notebook"


def remember(environment: Mapping[str, str | None]) -> None:
    """Store environment variables for this notebook's next start; None deletes a variable.

    Does nothing in a script.
    """
    if not interactive():
        return
    with _writing:
        stored = _read()
        kept = _environment(stored)
        for name, value in environment.items():
            _overruled.pop(name, None)
            if value is None:
                kept.pop(name, None)
            else:
                kept[name] = value
        _write({**stored, "environment": kept})


def recall() -> dict[str, str]:
    """Return the environment variables stored for this notebook.

    Variables that are overridden by the environment of a terminal are omitted.
    """
    return {n: value for n, value in _environment(_read()).items() if n not in _overruled}


def merge(name: str, value: str) -> str:
    """Merge a variable's value in the notebook's file with the stored value, and return the result.

    The value that has changed since the last merge wins and is stored. If both have changed, the
    value in the file wins, because it is visible and moves with the notebook.
    """
    with _writing:
        stored = _read()
        kept, merged = _environment(stored), _texts(stored.get("merged"))
        changed = merged.get(name) != value
        winner = value if changed else kept.get(name, value)
        kept[name], merged[name] = winner, value
        _write({**stored, "environment": kept, "merged": merged})
    return winner


def apply() -> dict[str, str]:
    """Set the stored variables in this process before they are read, and return them."""
    if not interactive():
        return {}
    remembered = recall()
    for name, value in remembered.items():
        if _in_terminal() and os.environ.get(name, value) != value:
            _overruled[name] = value
        else:
            put(name, value)
    if remembered:
        with suppress(OSError):  # marks the file as recently used
            os.utime(_file())
    return recall()


def put(name: str, value: str) -> None:
    """Set a variable in this process to the notebook's value."""
    inherited = os.environ.get(name, value)
    if inherited != value:
        _replaced.setdefault(name, inherited)
    os.environ[name] = value


def differences() -> list[str]:
    """Return sentences about stored variables that differ from the environment."""
    notebook = [
        f"{name}={os.environ[name]} is this notebook's setting; the environment's value was "
        f"{inherited}."
        for name, inherited in _replaced.items()
        if os.environ.get(name) not in (None, inherited)
    ]
    return notebook + [
        f"{name}={os.environ[name]} is set in the environment and overrides this folder's setting "
        f"of {value}."
        for name, value in _overruled.items()
        if name in os.environ
    ]


def restart_kernel(kernel_id: str | None = None, *, remembered: bool = False) -> None:
    """Request a restart of this or another kernel from the Jupyter server, and return immediately.

    Raises `RestartUnavailableError` if no server can restart the kernel. With ``remembered``, the
    error explains that a manual restart also applies the stored setting.
    """
    kernel_id = kernel_id or _kernel_id
    server = _server()
    instead = f"{by_hand()} {REMEMBERED}" if remembered else by_hand()
    if kernel_id is None or server is None:
        raise RestartUnavailableError(f"No Jupyter server can restart this process: {instead}")
    try:
        _ask(server, "GET", kernel_id)
    except (OSError, ValueError) as error:
        raise RestartUnavailableError(
            f"The Jupyter server at {server['url']} refused the request ({error}): {instead}"
        ) from error
    # The request is sent from a thread, because the server kills this process before it responds.
    # The delay gives the cell time to finish and its output time to reach the page.
    request = threading.Timer(_DELAY, _ask, args=(server, "POST", f"{kernel_id}/restart"))
    request.daemon = True  # the process must not wait for the request before it exits
    request.start()


def by_hand() -> str:
    """Return how to restart without a Jupyter server."""
    return _IN_TERMINAL if _in_terminal() else _BY_HAND


def _in_terminal() -> bool:
    return not os.environ.get("JPY_SESSION_NAME") and _kernel_id is None


def _session() -> str:
    name = os.environ.get("JPY_SESSION_NAME")
    if name:
        return name
    return f"kernel {_kernel_id}" if _kernel_id else f"terminal in {os.getcwd()}"


def _read() -> dict[str, Any]:
    """Return this notebook's stored settings, or an empty dict if there is no valid file."""
    try:
        stored = json.loads(_file().read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _write(stored: Mapping[str, Any]) -> None:
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as new:
        json.dump({**stored, "for": _session()}, new, indent=2)
    os.replace(new.name, path)
    _forget_all_but(_NOTEBOOKS_KEPT, path.parent)


def _forget_all_but(most: int, folder: Path) -> None:
    """Delete the settings of the least recently used notebooks."""
    used: list[tuple[float, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another kernel may have deleted the file
                if entry.is_file():
                    used.append((entry.stat().st_mtime, entry.path))
    for _, path in sorted(used, reverse=True)[most:]:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _environment(stored: Mapping[str, Any]) -> dict[str, str]:
    return _texts(stored.get("environment"))


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {str(name): str(text) for name, text in value.items()}


def _file() -> Path:
    from jupyter_core.paths import jupyter_data_dir

    digest = hashlib.sha256(_session().encode()).hexdigest()[:32]
    return Path(jupyter_data_dir()) / "hpu_magic" / f"{digest}.json"


def _server() -> dict[str, Any] | None:
    """Return information about the parent Jupyter server, such as its URL and token."""
    from jupyter_core.paths import jupyter_runtime_dir

    parent = os.environ.get("JPY_PARENT_PID", "")
    try:
        server = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_text())
    except (OSError, ValueError):
        return None
    return server if isinstance(server, dict) and str(server.get("pid")) == parent else None


def _ask(server: Mapping[str, Any], method: str, path: str) -> None:
    import urllib.request  # this import is slow, but loading the extension must be instant

    request = urllib.request.Request(f"{server['url']}api/kernels/{path}", method=method)
    # Under JupyterHub, the server has no token of its own and accepts the user's token.
    token = server.get("token") or os.environ.get("JUPYTERHUB_API_TOKEN")
    if token:
        request.add_header("Authorization", f"token {token}")
    # The server is this process's parent, so there is no proxy between them.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=60) as answer:
        answer.read()
