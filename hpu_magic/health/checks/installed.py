"""What is installed: the packages that hpu_magic works with."""

from __future__ import annotations

from collections.abc import Iterator

import hpu_magic
from hpu_magic import backend
from hpu_magic.health.finding import Finding, State
from hpu_magic.health.machine import Machine

# Distributions that parts of hpu_magic need -> what there is none of without them, and the extra.
_NEEDED = {
    "lightning": ("fits with Lightning", "lightning"),
    "ipywidgets": ("live panels", "notebook"),
    "anywidget": ("live panels", "notebook"),
    "bokeh": ("charts", "notebook"),
    "jupyterlab": ("the sidebar", "lab"),
    "ipyparallel": ("cells on several cards", "notebook"),
}
_OPTIONAL = ("transformers", "accelerate", "optimum-habana")
_OLDEST_PYTHON, _NEWEST_PYTHON = (3, 10), (3, 13)


def python(machine: Machine) -> Iterator[Finding]:
    """Look at the version of Python."""
    version = ".".join(map(str, machine.python))
    values = {"version": version}
    if _OLDEST_PYTHON <= machine.python[:2] <= _NEWEST_PYTHON:
        yield Finding("python", "green", f"Python is {version}.", values=values)
        return
    yield Finding(
        "python",
        "amber",
        f"Python is {version}; hpu_magic is made for 3.10 to 3.13 and may fail on others.",
        "Make an environment with one of these.",
        values,
    )


def itself(machine: Machine) -> Iterator[Finding]:
    """Tell the version of hpu_magic."""
    version = hpu_magic.__version__
    text = f"hpu_magic is {version}."
    yield Finding("hpu_magic", "green", text, values={"version": version})


def torch(machine: Machine) -> Iterator[Finding]:
    """Look for PyTorch."""
    version = machine.version("torch")
    if version:
        yield Finding("torch", "green", f"torch is {version}.", values={"version": version})
        return
    fix = (
        "Run `pip install torch`."
        if machine.simulated
        else "Install the one that comes with the vendor's release: any other is refused."
    )
    text = "torch is not installed, and there is no device without it."
    yield Finding("torch", "red", text, fix, {"version": None})


def bridge(machine: Machine) -> Iterator[Finding]:
    """Tell whose ``habana_frameworks`` is in use."""
    if machine.simulated:
        text = f"habana_frameworks is {backend.version()}."
        yield Finding("habana_frameworks", "green", text, values={"simulated": True})
        return
    version = machine.version("habana-torch-plugin")
    values = {"simulated": False, "version": version}
    if version:
        text = f"habana_frameworks is the vendor's, of habana-torch-plugin {version}."
        yield Finding("habana_frameworks", "green", text, values=values)
        return
    yield Finding(
        "habana_frameworks",
        "amber",
        "habana_frameworks is here, but no distribution habana-torch-plugin: version checks, as "
        "optimum-habana makes them, may fail.",
        "Install the vendor's wheel with pip rather than by copying its folder.",
        values,
    )


def packages(machine: Machine) -> Iterator[Finding]:
    """Look for what hpu_magic needs besides PyTorch, and for what it works with."""
    for name, (what, extra) in _NEEDED.items():
        version = machine.version(name)
        values = {"version": version}
        if version:
            yield Finding(name, "green", f"{name} is {version}.", values=values)
        else:
            text = f"{name} is not installed: there are no {what}."
            fix = f'Run `pip install "hpu_magic[{extra}]"`.'
            if not what.endswith("s"):
                text = f"{name} is not installed: {what} is missing."
            yield Finding(name, "amber", text, fix, values)
    for name in _OPTIONAL:
        version = machine.version(name)
        text = f"{name} is {version}." if version else f"{name} is not installed, nor needed."
        yield Finding(name, "green", text, values={"version": version})


def one_torch(machine: Machine) -> Iterator[Finding]:
    """Look for a second PyTorch, as a user's folder or a broken upgrade leaves it."""
    copies = machine.copies("torch")
    if len(copies) < 2:
        return
    versions = [copy.version for copy in copies]
    folders = {f"folder_{at}": str(copy.locate_file("")) for at, copy in enumerate(copies, 1)}
    listed = ", ".join(f"{each} in {{folder_{at}}}" for at, each in enumerate(versions, 1))
    # In one folder they have written over each other; of several, the first is whole.
    mixed = len(set(folders.values())) < len(folders)
    state: State = "red" if mixed else "amber"
    why = "files of both are mixed" if mixed else "Python takes the first, other programs may not"
    yield Finding(
        "two torches",
        state,
        f"torch is installed {len(copies)} times: {listed}; {why}.",
        "Run `pip uninstall torch` until none is left, then install one.",
        {"versions": ", ".join(versions)},
        folders,
    )
