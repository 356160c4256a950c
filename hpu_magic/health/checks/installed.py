"""Check the installed packages."""

from __future__ import annotations

from collections.abc import Iterator

import hpu_magic
from hpu_magic import backend
from hpu_magic.health.finding import Finding, State
from hpu_magic.health.machine import Machine

# Maps required distributions to the features that need them, and the extra that installs them.
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
    """Check the Python version."""
    version = ".".join(map(str, machine.python))
    values = {"version": version}
    if _OLDEST_PYTHON <= machine.python[:2] <= _NEWEST_PYTHON:
        yield Finding("python", "green", f"Python is {version}.", values=values)
        return
    yield Finding(
        "python",
        "amber",
        f"Python is {version}; hpu_magic supports 3.10 to 3.13 and may fail with other versions.",
        "Create an environment with a supported version.",
        values,
    )


def itself(machine: Machine) -> Iterator[Finding]:
    """Report the hpu_magic version."""
    version = hpu_magic.__version__
    text = f"hpu_magic is {version}."
    yield Finding("hpu_magic", "green", text, values={"version": version})


def torch(machine: Machine) -> Iterator[Finding]:
    """Check that PyTorch is installed."""
    version = machine.version("torch")
    if version:
        yield Finding("torch", "green", f"torch is {version}.", values={"version": version})
        return
    fix = (
        "Run `pip install torch`."
        if machine.simulated
        else "Install the torch release that the vendor's plug-in requires; the plug-in does not "
        "load with any other release."
    )
    text = "torch is not installed; the device requires it."
    yield Finding("torch", "red", text, fix, {"version": None})


def bridge(machine: Machine) -> Iterator[Finding]:
    """Report whether ``habana_frameworks`` comes from the vendor or from the simulator."""
    if machine.simulated:
        text = f"habana_frameworks is {backend.version()}."
        yield Finding("habana_frameworks", "green", text, values={"simulated": True})
        return
    version = machine.version("habana-torch-plugin")
    values = {"simulated": False, "version": version}
    if version:
        text = f"habana_frameworks is the vendor's package, from habana-torch-plugin {version}."
        yield Finding("habana_frameworks", "green", text, values=values)
        return
    yield Finding(
        "habana_frameworks",
        "amber",
        "habana_frameworks is present, but its distribution habana-torch-plugin is not: version "
        "checks, such as optimum-habana's, may fail.",
        "Install the vendor's wheel with pip instead of copying its folder.",
        values,
    )


def packages(machine: Machine) -> Iterator[Finding]:
    """Check for required packages other than PyTorch, and for optional ones."""
    for name, (feature, extra) in _NEEDED.items():
        version = machine.version(name)
        values = {"version": version}
        if version:
            yield Finding(name, "green", f"{name} is {version}.", values=values)
        else:
            verb = "are" if feature.endswith("s") else "is"
            text = f"{name} is not installed: {feature} {verb} missing."
            fix = f'Run `pip install "hpu_magic[{extra}]"`.'
            yield Finding(name, "amber", text, fix, values)
    for name in _OPTIONAL:
        version = machine.version(name)
        text = f"{name} is {version}." if version else f"{name} is optional and not installed."
        yield Finding(name, "green", text, values={"version": version})


def one_torch(machine: Machine) -> Iterator[Finding]:
    """Check for a second copy of PyTorch, as in the user's folder or after a failed upgrade."""
    copies = machine.copies("torch")
    if len(copies) < 2:
        return
    versions = [copy.version for copy in copies]
    folders = {f"folder_{at}": str(copy.locate_file("")) for at, copy in enumerate(copies, 1)}
    listed = ", ".join(f"{each} in {{folder_{at}}}" for at, each in enumerate(versions, 1))
    # Copies in the same folder have overwritten each other's files. In different folders, no files
    # are missing, and Python imports the first copy.
    mixed = len(set(folders.values())) < len(folders)
    state: State = "red" if mixed else "amber"
    why = "Python uses the first copy, but other programs may not"
    if mixed:
        why = "their files are mixed"
    yield Finding(
        "two torches",
        state,
        f"torch is installed {len(copies)} times: {listed}; {why}.",
        "Run `pip uninstall torch` until no copy is left, then install torch again.",
        {"versions": ", ".join(versions)},
        folders,
    )
