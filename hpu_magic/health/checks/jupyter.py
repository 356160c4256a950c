"""Check Jupyter: proxies, servers, front-end extensions and widgets."""

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
# Maps front-end extensions to the features that need them.
_EXTENSIONS = {
    "hpu_magic": "the sidebar, the status bar and the mode switch",
    "@jupyter-widgets/jupyterlab-manager": "live panels",
    "anywidget": "live panels",
}
_SYSTEM = ("/usr/local", "/usr")
# The Python and JavaScript parts of widget libraries, and their matching major versions.
_HALVES = (
    ("ipywidgets", "jupyterlab_widgets", {7: 1, 8: 3}),
    ("bokeh", "jupyter_bokeh", {2: 3, 3: 4}),
)


def proxy_variables(machine: Machine) -> Iterator[Finding]:
    """Check whether proxy variables also apply to connections to this machine."""
    variables = {name.lower(): value for name, value in machine.environment.items() if value}
    through = [name for name in _PROXIES if name in variables]
    if not through:
        text = "No proxy variables are set."
        yield Finding("proxy variables", "green", text, values={"set": ""})
        return
    names = ", ".join(name.upper() for name in through)
    excluded = [host.strip().lower() for host in variables.get("no_proxy", "").split(",")]
    missing = [own for own in _OWN if own not in excluded and "*" not in excluded]
    if any(host.startswith("127.") for host in excluded):  # such as the network 127.0.0.0/8
        missing = [own for own in missing if own != "127.0.0.1"]
    values = {"set": names, "not_spared": ", ".join(missing)}
    if not missing:
        text = f"{names} is set, and NO_PROXY excludes servers on this machine."
        yield Finding("proxy variables", "green", text, values=values)
        return
    yield Finding(
        "proxy variables",
        "amber",
        f"{names} may send connections to {' and '.join(missing)} through the proxy: connections "
        "to a server, TensorBoard or rank on this machine may hang or fail.",
        "Add localhost,127.0.0.1 to NO_PROXY before Jupyter starts.",
        values,
    )


def servers(machine: Machine) -> Iterator[Finding]:
    """Check who can access this user's Jupyter servers, and any proxies in front of them."""
    running = list(_servers(machine))
    if not running:
        text = "This user is not running a Jupyter server on this machine."
        yield Finding("Jupyter server", "green", text, values={"servers": 0})
    for server in running:
        yield _access(machine, server)
        yield _route(machine, server)


def front_end(machine: Machine) -> Iterator[Finding]:
    """Check that the front-end extensions are installed, enabled, and match this version."""
    if machine.version("jupyterlab") is None:
        return
    for old in requirements.old_front_ends(machine.version):
        text, fix = old.split(" Run ")
        values: dict[str, Value] = {"version": machine.version("jupyterlab")}
        yield Finding("front end", "amber", text, f"Run {fix}", values)
    disabled = _disabled(machine)
    for name, features in _EXTENSIONS.items():
        about = f"front end of {name.rpartition('/')[0] or name}"
        found = _extension(machine, name)
        version = None if found is None else str(found.get("version"))
        values = {"version": version, "disabled": disabled.get(name, False)}
        if found is None:
            text = f"The JupyterLab extension {name} is not installed: {features} may be missing."
            fix = "Install hpu_magic in the environment of `jupyter lab`, and reload the page."
            yield Finding(about, "amber", text, fix, values)
        elif disabled.get(name):
            text = f"The JupyterLab extension {name} is disabled: {features} are missing."
            fix = f"Run `jupyter labextension enable {name}` and reload the page."
            yield Finding(about, "red", text, fix, values)
        elif name == "hpu_magic" and version != hpu_magic.__version__:
            text = (
                f"The JupyterLab extension is {version}, but hpu_magic is {hpu_magic.__version__}: "
                "they may be incompatible."
            )
            fix = "Reinstall hpu_magic in the environment of `jupyter lab`, and reload the page."
            yield Finding(about, "amber", text, fix, values)
        else:
            text = f"The JupyterLab extension {name} {version} is installed and enabled."
            yield Finding(about, "green", text, values=values)


def server_extension(machine: Machine) -> Iterator[Finding]:
    """Check that the Jupyter server is configured to load the sidebar's server extension."""
    if machine.version("jupyter_server") is None:
        return
    names = ("jupyter_server_config.json", "jupyter_server_config.d/hpu_magic.json")
    states = [
        _within(_within(_json(folder / name), "ServerApp"), "jpserver_extensions").get("hpu_magic")
        for folder in _config_folders(machine)
        for name in names
    ]
    configured = [state for state in states if state is not None]
    values = {"enabled": bool(configured) and bool(configured[0])}
    if not configured:
        text = (
            "This environment does not configure the Jupyter server to load hpu_magic: the sidebar "
            "may stay empty."
        )
        fix = "Run `jupyter server extension enable hpu_magic` and restart the server."
        yield Finding("server extension", "amber", text, fix, values)
    elif not configured[0]:
        text = "The Jupyter server is configured not to load hpu_magic: the sidebar stays empty."
        fix = "Run `jupyter server extension enable hpu_magic` and restart the server."
        yield Finding("server extension", "red", text, fix, values)
    else:
        text = "The Jupyter server loads hpu_magic."
        yield Finding("server extension", "green", text, values=values)


def widget_halves(machine: Machine) -> Iterator[Finding]:
    """Check that the versions of the Python and JavaScript parts of widget libraries match."""
    for python, page, pairs in _HALVES:
        ours, theirs = machine.version(python), machine.version(page)
        if not ours or not theirs:
            continue
        about = f"{python} and {page}"
        values = {python: ours, page: theirs}
        wanted = pairs.get(numbers(ours)[0])
        if wanted is None:
            text = (
                f"{page} {theirs} may be incompatible with {python} {ours}; hpu_magic cannot check "
                "this."
            )
            fix = f"Run `pip install -U {python} {page}`."
            yield Finding(about, "amber", text, fix, values)
        elif numbers(theirs)[0] != wanted:
            text = (
                f"{python} {ours} needs {page} {wanted}, but {theirs} is installed: widgets are "
                "empty or appear as text."
            )
            fix = f'Run `pip install "{page}=={wanted}.*"` and reload the page.'
            yield Finding(about, "red", text, fix, values)
        else:
            yield Finding(about, "green", f"{python} {ours} and {page} {theirs} are compatible.")


def _access(machine: Machine, server: dict[str, Any]) -> Finding:
    """Return a finding about who can access a server; the server's address is private."""
    about = "Jupyter server"
    private = {"server": _address(server)}
    local = server.get("hostname") in _LOOPBACK or bool(server.get("sock"))
    values = {"token": bool(server.get("token")), "password": bool(server.get("password"))}
    values |= {"loopback": local}
    if values["token"] or values["password"]:
        text = "The server at {server} requires a token or a password."
        return Finding(about, "green", text, values=values, private=private)
    if _HUB in machine.environment:
        text = "JupyterHub controls access to the server at {server}."
        return Finding(about, "green", text, values=values, private=private)
    text = (
        "The server at {server} has no token or password: anyone who can reach it "
        f"{'from this machine' if local else 'over the network'} can run code as you, unless "
        "a proxy in front of it checks users."
    )
    fix = (
        "Start the server with a token: do not set IdentityProvider.token='' or ServerApp.token=''."
    )
    return Finding(about, "amber" if local else "red", text, fix, values, private)


def _route(machine: Machine, server: dict[str, Any]) -> Finding:
    """Return a finding about a hub or proxy in front of a server, judging by its base URL."""
    base = str(server.get("base_url") or "/")
    hub = machine.environment.get(_HUB)
    about = "path to the server"
    values = {"below_root": base != "/", "hub": hub is not None}
    private = {"base_url": base, "prefix": hub or ""}
    ours = machine.environment.get("JPY_PARENT_PID") == str(server.get("pid"))
    if ours and hub and hub.strip("/") != base.strip("/"):
        text = (
            "JupyterHub routes {prefix} to this server, but the server's base URL is {base_url}: "
            "pages may not reach it."
        )
        fix = "Do not set ServerApp.base_url under JupyterHub."
        return Finding(about, "amber", text, fix, values, private)
    if base != "/" and hub is None:
        text = (
            "The server's base URL is {base_url}, so it is probably behind a proxy. A proxy that "
            "blocks WebSockets or shortens paths prevents kernels and the sidebar from connecting."
        )
        fix = "Configure the proxy to forward the Upgrade and Connection headers and the full path."
        return Finding(about, "amber", text, fix, values, private)
    text = "The server's base URL is {base_url}."
    return Finding(about, "green", text, values=values, private=private)


def _servers(machine: Machine) -> Iterator[dict[str, Any]]:
    """Yield the contents of the info files of running servers."""
    configured = machine.environment.get("JUPYTER_RUNTIME_DIR")
    folder = Path(configured) if configured else _user_data(machine) / "runtime"
    for path in sorted(folder.glob("jpserver-*.json")):
        server = _json(path)
        # A server that was killed leaves its file behind.
        if machine.path(f"/proc/{server.get('pid')}").is_dir():
            yield server


def _address(server: dict[str, Any]) -> str:
    return str(server.get("sock") or f"{server.get('hostname')}:{server.get('port')}")


def _extension(machine: Machine, name: str) -> dict[str, Any] | None:
    """Return the first ``package.json`` found for an installed extension."""
    for folder in _data_folders(machine):
        if package := _json(folder / "labextensions" / name / "package.json"):
            return package
    return None


def _disabled(machine: Machine) -> dict[str, bool]:
    """Return whether each extension is disabled, by name; user settings take precedence."""
    places = [folder / "labconfig" for folder in _config_folders(machine)]
    places.append(machine.prefix / "share" / "jupyter" / "lab" / "settings")
    states: dict[str, bool] = {}
    for place in places:
        config = _json(place / "page_config.json")
        disabled = config.get("disabledExtensions")
        # Older releases of JupyterLab store a list.
        listed = dict.fromkeys(map(str, disabled), True) if isinstance(disabled, list) else {}
        for name, state in (_within(config, "disabledExtensions") or listed).items():
            states.setdefault(name.partition(":")[0], bool(state))
    return states


def _user_data(machine: Machine) -> Path:
    configured = machine.environment.get("JUPYTER_DATA_DIR")
    return Path(configured) if configured else machine.home / ".local" / "share" / "jupyter"


def _data_folders(machine: Machine) -> list[Path]:
    more = machine.environment.get("JUPYTER_PATH", "").split(os.pathsep)
    ours = _in_order(machine, _user_data(machine), machine.prefix / "share" / "jupyter")
    system = [machine.path(f"{folder}/share/jupyter") for folder in _SYSTEM]
    return [Path(folder) for folder in more if folder] + ours + system


def _config_folders(machine: Machine) -> list[Path]:
    more = machine.environment.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    configured = machine.environment.get("JUPYTER_CONFIG_DIR")
    own = Path(configured) if configured else machine.home / ".jupyter"
    ours = _in_order(machine, own, machine.prefix / "etc" / "jupyter")
    system = [machine.path(folder) for folder in ("/usr/local/etc/jupyter", "/etc/jupyter")]
    return [Path(folder) for folder in more if folder] + ours + system


def _in_order(machine: Machine, user: Path, environment: Path) -> list[Path]:
    """Return the folders of the user and the environment in Jupyter's order of precedence."""
    virtual = (machine.prefix / "pyvenv.cfg").exists()
    preference = machine.environment.get("JUPYTER_PREFER_ENV_PATH")
    first = virtual if preference is None else machine.switched_on("JUPYTER_PREFER_ENV_PATH")
    return [environment, user] if first else [user, environment]


def _within(config: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object stored under a key, or an empty one if it is missing or not an object."""
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if the file is missing or invalid."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
