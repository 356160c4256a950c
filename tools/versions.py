"""Run the tests in temporary environments, one for each combination of releases.

``python tools/versions.py [--keep FOLDER] [--quick] [NAME ...]`` runs all or the named combinations
and updates their rows in ``docs/versions.md``. ``--keep`` keeps the environments in FOLDER for the
next run. ``--quick`` omits the tests of the sidebar and the tables of operators, which make up most
of the tests. The environment variable ``TORCH_INDEX`` specifies the package index for torch, such
as one with CPU builds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
TABLE = PROJECT / "docs" / "versions.md"
SUITES = (
    *(
        f"tests/simulator/{suite}"
        for suite in ("device", "custom", "graphs", "compile", "distributed", "face")
    ),
    "tests/runtime",
    "tests/lightning",
    "tests/fits/test_fit.py",
    "tests/notebooks/test_quickstart.py",
)
# Exhaustive tests of operators, outputs and numbers, which make up most of the tests.
EXHAUSTIVE = (
    *(f"tests/simulator/device/test_{suite}.py" for suite in ("operators", "outputs")),
    *(
        f"tests/simulator/compile/test_compiled_{suite}.py"
        for suite in ("operators", "numbers", "memory_formats")
    ),
)
# Tests of cell outputs, which depend the most on the front end.
BROWSER = tuple(f"tests/browser/test_{name}.py" for name in ("panel", "notebook"))


@dataclass(frozen=True)
class Combination:
    """Version specifiers of releases that are tested together; empty for the newest release."""

    name: str
    python: str
    torch: str
    lightning: str
    jupyterlab: str = "==4.6.6"
    browser: bool = False


COMBINATIONS = (
    Combination("2.6", "3.10", "==2.6.*", "==2.5.*"),
    Combination("2.8", "3.11", "==2.8.*", "==2.5.*"),
    Combination("2.10", "3.13", "==2.10.*", "==2.6.*"),
    Combination("2.11", "3.12", "==2.11.*", "==2.6.*"),
    Combination("2.13", "3.11", "==2.13.*", "==2.6.*"),
    Combination("newest", "3.13", "", "==2.6.*", jupyterlab="", browser=True),
)
# Packages whose versions depend on torch or on the combination.
_FREE = (
    r"(torch|sympy|networkx|filelock|fsspec|lightning|pytorch-lightning"
    r"|jupyterlab|jupyterlab_server|notebook_shim)=="
)
_MEASURE = """
import importlib.metadata as metadata
import platform
import torch
try:
    from habana_frameworks.torch._limits import sentence
    lacks = sentence()
except ImportError as failed:
    lacks = f"does not load: {failed}"
versions = [metadata.version(name) for name in ("torch", "lightning", "jupyterlab", "notebook")]
print("", versions[0], platform.python_version(), *versions[1:], lacks, sep="|")
"""


def main(arguments: list[str]) -> int:
    """Run the combinations, and return 1 if any test failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args(arguments)
    names = chosen.names
    known = {each.name: each for each in COMBINATIONS}
    if unknown := set(names) - set(known):
        print(f"{', '.join(sorted(unknown))} is unknown; use {', '.join(known)}.")
        return 2
    failed = False
    for name in names or known:
        with _place(chosen.keep, name) as folder:
            row = _run(known[name], folder, chosen.quick)
        failed |= row["failed"] != "0"
        write(TABLE, name, row)
    return int(failed)


@contextlib.contextmanager
def _place(kept: Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of an environment, and delete it afterwards if ``kept`` is None."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="hpu_magic_versions_") as folder:
            yield Path(folder)
    else:
        folder = kept.resolve() / name
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def _run(chosen: Combination, folder: Path, quick: bool) -> dict[str, str]:
    row = dict.fromkeys(("lacks", "passed", "failed", "skipped"), "-")
    row["tests"] = "quick" if quick else "all"
    row |= {"python": chosen.python, "torch": chosen.torch or "newest", "failed": "not installed"}
    try:
        python = _install(chosen, folder)
    except (OSError, subprocess.CalledProcessError) as reason:
        print(f"{chosen.name}: {reason}", file=sys.stderr)
        return row
    environment = _environment(python)
    done = subprocess.run(
        [python, "-c", _MEASURE], env=environment, capture_output=True, text=True, check=False
    )
    if measured := re.search(r"^\|(.*)$", done.stdout, re.MULTILINE):
        keys = ("torch", "python", "lightning", "jupyterlab", "notebook", "lacks")
        row |= dict(zip(keys, measured[1].split("|"), strict=True))
    left_out = [f"--ignore={suite}" for suite in EXHAUSTIVE] if quick else []
    totals = counts(_pytest(python, environment, (*SUITES, *left_out)))
    if chosen.browser:
        shown = BROWSER if quick else ("tests/browser",)
        in_browser = counts(_pytest(python, environment, ("-m", "browser", *shown)))
        totals = {kind: totals[kind] + in_browser[kind] for kind in totals}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT, capture_output=True, text=True
    )
    return (
        row
        | {kind: str(count) for kind, count in totals.items()}
        | {"commit": commit.stdout.strip()}
    )


def _install(chosen: Combination, folder: Path) -> Path:
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        found = interpreter(chosen.python)
        subprocess.run([found, "-I", "-m", "venv", folder / "venv"], check=True)
    pinned = (PROJECT / "constraints.txt").read_text().splitlines()
    constraints = folder / "constraints.txt"
    kept = [line for line in pinned if not re.match(_FREE, line)]
    pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    index = os.environ.get("TORCH_INDEX")
    subprocess.run(
        [*pip, f"torch{chosen.torch}", *(["--index-url", index] if index else [])], check=True
    )
    # Pin torch, because packages that do not support this release yet would install an older one.
    installed = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('torch'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    constraints.write_text("\n".join([*kept, f"torch=={installed.stdout.strip()}"]))
    listed = subprocess.run(
        [python, PROJECT / "tools" / "requirements.py"], capture_output=True, text=True, check=True
    )
    wanted = [line for line in listed.stdout.split() if not line.startswith("torch")]
    wanted += [f"{name}{chosen.lightning}" for name in ("lightning", "pytorch-lightning")]
    wanted += [f"jupyterlab{chosen.jupyterlab}", "notebook>=7"]
    tools = ["-r", PROJECT / "requirements-dev.txt"]
    subprocess.run([*pip, "-c", constraints, *tools, "setuptools", *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", PROJECT], check=True)
    subprocess.run([python, PROJECT / "tools" / "labextension.py", "link"], check=True)
    return python


def interpreter(version: str) -> str:
    """Return the path of an interpreter on PATH, or of the newest matching one in pyenv."""
    found = shutil.which(f"python{version}")
    # pyenv has a shim for each version, which fails unless that version is selected.
    if found and subprocess.run([found, "-V"], capture_output=True).returncode == 0:
        return found
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True)
        if there := sorted(Path(root.stdout.strip()).glob(f"versions/{version}.*/bin/python")):
            return str(there[-1])
    raise FileNotFoundError(f"python{version} is neither on PATH nor in pyenv")


def _environment(python: Path) -> dict[str, str]:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "HPU_MAGIC_SIMULATOR": "1"}


def _pytest(python: Path, environment: dict[str, str], chosen: tuple[str, ...]) -> str:
    environment = {key: value for key, value in environment.items() if key != "HPU_MAGIC_SIMULATOR"}
    marked = chosen if "-m" in chosen else ("-m", "not browser", *chosen)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *marked],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    return done.stdout


def counts(output: str) -> dict[str, int]:
    """Return the counts in pytest's last line; if there are none, return one failure."""
    last = output.strip().rpartition("\n")[2]
    found = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    broken = found.get("failed", 0) + found.get("errors", 0) + found.get("error", 0)
    if not found.get("passed") and not broken:
        broken = 1
    return {
        "passed": found.get("passed", 0),
        "failed": broken,
        "skipped": found.get("skipped", 0),
    }


def write(table: Path, name: str, row: dict[str, str]) -> None:
    """Replace the row of a combination in the table."""
    columns = ("torch", "python", "lightning", "jupyterlab", "notebook")
    columns += ("tests", "passed", "failed", "skipped", "commit", "lacks")
    cells = [name, *(row.get(column) or "-" for column in columns)]
    line = f"| {' | '.join(cells)} |"
    text = table.read_text()
    present = re.compile(rf"^\| {re.escape(name)} \|.*$", re.MULTILINE)
    if not present.search(text):
        raise ValueError(f"{table} has no row for {name!r}: add one.")
    table.write_text(present.sub(lambda _: line, text, count=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
