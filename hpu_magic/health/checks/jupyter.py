"""Jupyter: what is between page, server and kernel, and whether the sidebar is there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hpu_magic
from hpu_magic import requirements
from hpu_magic.health.finding import Finding, Value
from hpu_magic.health.machine import Machine, numbers

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_OWN = ("localhost", "127.0.0.1")
_HUB = "JUPYTERHUB_SERVICE_PREFIX"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Front end -> why it is wanted.
_EXTENSIONS = {
    "hpu_magic": "the sidebar, the status bar and the mode switch",
    "@jupyter-widgets/jupyterlab-manager": "live panels",
    "anywidget": "live panels",
}
_SYSTEM = ("/usr/local", "/usr")
# Python's half of a front end -> the other half, and which of its releases go with which.
_HALVES = (
    ("ipywidgets", "jupyterlab_widgets", {7: 1, 8: 3}),
    ("bokeh", "jupyter_bokeh", {2: 3, 3: 4}),
)


def proxy_variables(machine: Machine) -> Iterator[Finding]:
    """Look for proxy variables that send a program's own machine through the proxy."""
    given = {name.lower(): value for name, value in machine.environment.items() if value}
    through = [name for name in _PROXIES if name in given]
    if not through:
        text = "No proxy variables are set."
        yield Finding("proxy variables", "green", text, values={"set": ""})
        return
    names = ", ".join(name.upper() for name in through)
    spared = [one.strip().lower() for one in given.get("no_proxy", "").split(",")]
    missing = [own for own in _OWN if own not in spared and "*" not in spared]
    if any(one.startswith("127.") for one in spared):  # a network, as 127.0.0.0/8
        missing = [own for own in missing if own != "127.0.0.1"]
    values = {"set": names, "not_spared": ", ".join(missing)}
    if not missing:
        text = f"With {names} set, NO_PROXY spares this machine's own servers."
        yield Finding("proxy variables", "green", text, values=values)
        return
    yield Finding(
        "proxy variables",
        "amber",
        f"{names} may send what is meant for {' and '.join(missing)} to the proxy: what asks a "
        "server, TensorBoard or rank on this machine then waits or fails.",
        "Set NO_PROXY=localhost,127.0.0.1 (and what it has) before Jupyter starts.",
        values,
    )


def servers(machine: Machine) -> Iterator[Finding]:
    """Look at the Jupyter servers of this user: who may enter, and what stands before them."""
    running = list(_servers(machine))
    if not running:
        text = "No Jupyter server of this user is running here."
        yield Finding("Jupyter server", "green", text, values={"servers": 0})
    for server in running:
        yield _entry(machine, server)
        yield _way(machine, server)


def front_end(machine: Machine) -> Iterator[Finding]:
    """Look for the front end's extensions: installed, turned on, and of this version."""
    if machine.version("jupyterlab") is None:
        return
    for old in requirements.too_old_a_front_end(machine.version):
        text, fix = old.split(" Run ")
        values: dict[str, Value] = {"version": machine.version("jupyterlab")}
        yield Finding("front end", "amber", text, f"Run {fix}", values)
    disabled = _disabled(machine)
    for name, what in _EXTENSIONS.items():
        about = f"front end of {name.rpartition('/')[0] or name}"
        found = _extension(machine, name)
        version = None if found is None else str(found.get("version"))
        values = {"version": version, "disabled": disabled.get(name, False)}
        if found is None:
            text = f"JupyterLab has no extension {name} in this environment: {what} may be missing."
            fix = "Install hpu_magic where `jupyter lab` is started from, and reload the page."
            yield Finding(about, "amber", text, fix, values)
        elif disabled.get(name):
            text = f"JupyterLab's extension {name} is turned off: {what} do not show."
            fix = f"Run `jupyter labextension enable {name}` and reload the page."
            yield Finding(about, "red", text, fix, values)
        elif name == "hpu_magic" and version != hpu_magic.__version__:
            text = (
                f"The extension in JupyterLab is {version}, and hpu_magic {hpu_magic.__version__}:"
                " they may not understand each other."
            )
            fix = "Install hpu_magic anew where `jupyter lab` is started from, and reload the page."
            yield Finding(about, "amber", text, fix, values)
        else:
            text = f"JupyterLab has the extension {name} {version}, turned on."
            yield Finding(about, "green", text, values=values)


def server_extension(machine: Machine) -> Iterator[Finding]:
    """Look whether the server is told to load what answers the sidebar."""
    if machine.version("jupyter_server") is None:
        return
    names = ("jupyter_server_config.json", "jupyter_server_config.d/hpu_magic.json")
    states = [
        _within(_within(_json(folder / name), "ServerApp"), "jpserver_extensions").get("hpu_magic")
        for folder in _config_folders(machine)
        for name in names
    ]
    told = [state for state in states if state is not None]
    values = {"enabled": bool(told) and bool(told[0])}
    if not told:
        text = (
            "This environment does not have Jupyter's server load hpu_magic: the sidebar may stay "
            "empty."
        )
        fix = "Run `jupyter server extension enable hpu_magic` and restart the server."
        yield Finding("server extension", "amber", text, fix, values)
    elif not told[0]:
        text = "Jupyter's server is told not to load hpu_magic: the sidebar stays empty."
        fix = "Run `jupyter server extension enable hpu_magic` and restart the server."
        yield Finding("server extension", "red", text, fix, values)
    else:
        yield Finding("server extension", "green", "Jupyter's server loads hpu_magic.", "", values)


def widget_halves(machine: Machine) -> Iterator[Finding]:
    """Hold Python's half of widgets against the one that pages load."""
    for python, page, pairs in _HALVES:
        ours, theirs = machine.version(python), machine.version(page)
        if not ours or not theirs:
            continue
        about = f"{python} and {page}"
        values = {python: ours, page: theirs}
        wanted = pairs.get(numbers(ours)[0])
        if wanted is None:
            text = f"Which {page} goes with {python} {ours} is not known here; {theirs} may not."
            fix = f"Run `pip install -U {python} {page}`."
            yield Finding(about, "amber", text, fix, values)
        elif numbers(theirs)[0] != wanted:
            text = (
                f"{python} {ours} needs {page} {wanted}, and {theirs} is installed: widgets stay "
                "empty, or show as text."
            )
            fix = f'Run `pip install "{page}=={wanted}.*"` and reload the page.'
            yield Finding(about, "red", text, fix, values)
        else:
            yield Finding(about, "green", f"{python} {ours} and {page} {theirs} go together.")


def _entry(machine: Machine, server: dict[str, Any]) -> Finding:
    """Judge who may enter a server; its address and token are told to nobody else."""
    about = "Jupyter server"
    private = {"server": _address(server)}
    local = server.get("hostname") in _LOOPBACK or bool(server.get("sock"))
    values = {"token": bool(server.get("token")), "password": bool(server.get("password"))}
    values |= {"loopback": local}
    if values["token"] or values["password"]:
        text = "The server at {server} asks for a token or a password."
        return Finding(about, "green", text, values=values, private=private)
    if _HUB in machine.environment:
        text = "The server at {server} leaves it to the hub who may enter."
        return Finding(about, "green", text, values=values, private=private)
    text = (
        "The server at {server} tells of no token or password: who reaches it "
        f"{'from this machine' if local else 'over the network'} may run code as you, unless "
        "something before it asks."
    )
    fix = "Start it with a token: leave out IdentityProvider.token='' and ServerApp.token=''."
    return Finding(about, "amber" if local else "red", text, fix, values, private)


def _way(machine: Machine, server: dict[str, Any]) -> Finding:
    """Judge what stands between the page and a server, as far as its address tells."""
    base = str(server.get("base_url") or "/")
    hub = machine.environment.get(_HUB)
    about = "way to the server"
    values = {"below_root": base != "/", "hub": hub is not None}
    private = {"base_url": base, "prefix": hub or ""}
    ours = machine.environment.get("JPY_PARENT_PID") == str(server.get("pid"))
    if ours and hub and hub.strip("/") != base.strip("/"):
        text = (
            "The hub serves this notebook below {prefix} and its server answers below {base_url}: "
            "pages may not find it."
        )
        fix = "Leave ServerApp.base_url to the hub."
        return Finding(about, "amber", text, fix, values, private)
    if base != "/" and hub is None:
        text = (
            "The server answers below {base_url}, as behind a proxy, which may hold up WebSockets "
            "or cut the path: kernels then do not connect, and the sidebar says so."
        )
        fix = "Let the proxy pass the headers Upgrade and Connection, and the whole path."
        return Finding(about, "amber", text, fix, values, private)
    text = "The server is reached below {base_url}."
    return Finding(about, "green", text, values=values, private=private)


def _servers(machine: Machine) -> Iterator[dict[str, Any]]:
    """Yield what running servers wrote down of themselves."""
    given = machine.environment.get("JUPYTER_RUNTIME_DIR")
    folder = Path(given) if given else _user_data(machine) / "runtime"
    for path in sorted(folder.glob("jpserver-*.json")):
        told = _json(path)
        # A server that was killed leaves its file.
        if machine.path(f"/proc/{told.get('pid')}").is_dir():
            yield told


def _address(server: dict[str, Any]) -> str:
    return str(server.get("sock") or f"{server.get('hostname')}:{server.get('port')}")


def _extension(machine: Machine, name: str) -> dict[str, Any] | None:
    """Return what an installed extension says of itself; as in JupyterLab the first counts."""
    for folder in _data_folders(machine):
        told = _json(folder / "labextensions" / name / "package.json")
        if told:
            return told
    return None


def _disabled(machine: Machine) -> dict[str, bool]:
    """Return which extensions are turned off, by name: a user's word before the environment's."""
    places = [folder / "labconfig" for folder in _config_folders(machine)]
    places.append(machine.prefix / "share" / "jupyter" / "lab" / "settings")
    states: dict[str, bool] = {}
    for place in places:
        config = _json(place / "page_config.json")
        told = config.get("disabledExtensions")
        # Older releases wrote a list.
        listed = dict.fromkeys(map(str, told), True) if isinstance(told, list) else {}
        for name, state in (_within(config, "disabledExtensions") or listed).items():
            states.setdefault(name.partition(":")[0], bool(state))
    return states


def _user_data(machine: Machine) -> Path:
    given = machine.environment.get("JUPYTER_DATA_DIR")
    return Path(given) if given else machine.home / ".local" / "share" / "jupyter"


def _data_folders(machine: Machine) -> list[Path]:
    more = machine.environment.get("JUPYTER_PATH", "").split(os.pathsep)
    ours = _in_order(machine, _user_data(machine), machine.prefix / "share" / "jupyter")
    system = [machine.path(f"{folder}/share/jupyter") for folder in _SYSTEM]
    return [Path(each) for each in more if each] + ours + system


def _config_folders(machine: Machine) -> list[Path]:
    more = machine.environment.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    given = machine.environment.get("JUPYTER_CONFIG_DIR")
    own = Path(given) if given else machine.home / ".jupyter"
    ours = _in_order(machine, own, machine.prefix / "etc" / "jupyter")
    system = [machine.path(folder) for folder in ("/usr/local/etc/jupyter", "/etc/jupyter")]
    return [Path(each) for each in more if each] + ours + system


def _in_order(machine: Machine, user: Path, environment: Path) -> list[Path]:
    """Return the user's folder and the environment's in the order in which Jupyter takes them."""
    virtual = (machine.prefix / "pyvenv.cfg").exists()
    given = machine.environment.get("JUPYTER_PREFER_ENV_PATH")
    first = virtual if given is None else machine.switched_on("JUPYTER_PREFER_ENV_PATH")
    return [environment, user] if first else [user, environment]


def _within(told: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key; an empty one where something else stands there."""
    found = told.get(key)
    return found if isinstance(found, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    """Return what a file of JSON holds; nothing where there is none, or none that can be read."""
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
