"""Settings that outlive a kernel, and the restart that lets them take effect.

Settings are remembered for the notebook: by its path, which the Jupyter server puts into
``JPY_SESSION_NAME``, else by the kernel's id, which a restart keeps, else (a terminal) by the
working directory. In a notebook they win over the environment, which the server has passed on; in a
terminal the environment wins, which the user has set for this start.

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
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpu_magic.errors import RefusedError

_BY_HAND = "restart the kernel by hand (in JupyterLab: Kernel, Restart)."
_IN_TERMINAL = "end this session and start it again."
REMEMBERED = "The setting is remembered."

_DELAY = 0.5  # seconds
_NOTEBOOKS_KEPT = 500

_interactive = False
_kernel_id: str | None = None
# Variables of the environment that differ from what is remembered: those that a notebook has
# replaced, and what is remembered for a terminal whose environment holds.
_replaced: dict[str, str] = {}
_overruled: dict[str, str] = {}
# Cells and the kernel's control thread both write what is remembered.
_writing = threading.Lock()


class RestartUnavailableError(RefusedError):
    """The kernel cannot be restarted from within."""


def attach(connection_file: str | None) -> None:
    """Say that this process is interactive, and by which connection file its kernel is reached.

    Parameters
    ----------
    connection_file : str or None
        ``kernel-<id>.json``, or None in a terminal.
    """
    global _interactive
    _interactive = True
    _overruled.clear()
    identify(connection_file)


def identify(connection_file: str | None) -> None:
    """Say by which connection file this process's kernel is reached, and nothing else."""
    global _kernel_id
    found = re.match(r"kernel-(.+)\.json$", os.path.basename(connection_file or ""))
    _kernel_id = found[1] if found else None


def interactive() -> bool:
    """Tell whether there is a notebook or terminal session to remember settings for."""
    return _interactive


def available() -> bool:
    """Return whether `restart_kernel` has a Jupyter server to call."""
    return _kernel_id is not None and _server() is not None


def how(command: str) -> str:
    """Return how a user restarts: with ``--restart`` of a command, or by hand without a server."""
    return f"type {command} --restart (variables are lost)." if available() else by_hand()


def place() -> str:
    """Return what settings are remembered for: ``notebook`` or ``folder``."""
    return "folder" if _in_terminal() else "notebook"


def remember(environment: Mapping[str, str | None]) -> None:
    """Keep environment variables for this notebook's next start; None forgets one.

    Scripts have nothing to remember for: nothing happens there.
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
    """Return the environment variables remembered for this notebook.

    Those that the environment of a terminal overrules are left out.
    """
    return {n: value for n, value in _environment(_read()).items() if n not in _overruled}


def merge(name: str, value: str) -> str:
    """Settle one variable between what the notebook's file says and what is remembered.

    Whichever of the two changed since they were last merged wins, and the file if both did:
    it travels with the notebook, and people see it.

    Parameters
    ----------
    name : str
        The environment variable.
    value : str
        What the notebook's file says.

    Returns
    -------
    str
        What holds, and is remembered from now on.
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
    """Set the remembered variables in this process and return them; for before they are read."""
    if not interactive():
        return {}
    remembered = recall()
    for name, value in remembered.items():
        if _in_terminal() and os.environ.get(name, value) != value:
            _overruled[name] = value
        else:
            put(name, value)
    if remembered:
        with suppress(OSError):  # only so that it counts as used lately
            os.utime(_file())
    return recall()


def put(name: str, value: str) -> None:
    """Set a variable of this process to what its notebook has for it."""
    inherited = os.environ.get(name, value)
    if inherited != value:
        _replaced.setdefault(name, inherited)
    os.environ[name] = value


def differences() -> list[str]:
    """Say which remembered variables differ from the environment, and which of the two holds."""
    said = [
        f"{name}={os.environ[name]} holds, which this notebook remembers; the environment had "
        f"{inherited}."
        for name, inherited in _replaced.items()
        if os.environ.get(name) not in (None, inherited)
    ]
    return said + [
        f"{name}={os.environ[name]} of the environment holds; {value} is remembered for this "
        "folder."
        for name, value in _overruled.items()
        if name in os.environ
    ]


def restart_kernel(kernel_id: str | None = None, *, remembered: bool = False) -> None:
    """Ask the Jupyter server to restart this kernel; returns before it happens.

    Parameters
    ----------
    kernel_id : str or None
        The kernel to restart; by default the one given to `attach`.
    remembered : bool
        The restart is for a setting, which a restart by hand applies, too.

    Raises
    ------
    RestartUnavailableError
        There is no server that would do it; the text says to restart by hand.
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
            f"The Jupyter server at {server['url']} refused ({error}): {instead}"
        ) from error
    # The server ends this process before it answers, so it is asked from a thread, and after a
    # moment in which the cell can end and what it displays can leave.
    request = threading.Timer(_DELAY, _ask, args=(server, "POST", f"{kernel_id}/restart"))
    request.daemon = True  # it would keep this process from ending, which it waits for
    request.start()


def by_hand() -> str:
    """Return how a user restarts where no Jupyter server does it."""
    return _IN_TERMINAL if _in_terminal() else _BY_HAND


def _in_terminal() -> bool:
    return not os.environ.get("JPY_SESSION_NAME") and _kernel_id is None


def _session() -> str:
    name = os.environ.get("JPY_SESSION_NAME")
    if name:
        return name
    return f"kernel {_kernel_id}" if _kernel_id else f"terminal in {os.getcwd()}"


def _read() -> dict[str, Any]:
    """Return all that is kept for this notebook; nothing where another version wrote it."""
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
    """Drop what is remembered for the notebooks that were not used for the longest time."""
    used: list[tuple[float, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another kernel does the same
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
