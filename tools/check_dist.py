"""Install the built files into empty environments, use them, upgrade them and uninstall them.

``python -m tools.check_dist [--from FOLDER] [--keep FOLDER] [--torch REQUIREMENT]`` requires the
files that ``make dist`` builds; ``--keep`` is the folder in which ``make dist`` keeps environments
with other releases. The environments have no compiler, Node or checkout. Each line is printed after
its check has passed; the first failed check ends the run.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hpu_magic
from hpu_magic.simulator.engine import wheels
from tests.browser.conftest import CHROMIUM_NAMES
from tools.empty_environment import EmptyEnvironment, page_of, run_until_the_panel_moves

PROJECT = Path(__file__).parents[1]
OLD = "0.0.1"
OWN = ("hpu_magic", wheels.DISTRIBUTION)
DEVICE = """
import habana_frameworks.torch
import hpu_magic, torch
from hpu_magic.simulator import engine
print(torch.ones(2, device="hpu").sum().item(), engine.load().__spec__.origin)
"""


def main(arguments: list[str]) -> int:
    """Check all built files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    built = PROJECT / "build" / "dist"
    parser.add_argument("--from", dest="built", type=Path, metavar="FOLDER", default=built)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--torch", default="torch", metavar="REQUIREMENT")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hpu_magic_check_dist_") as folder:
        place = Path(folder)
        check_reproducible(options.built, options.keep, place / "again")
        check_archive(options.built, place / "archive")
        old = built_as(OLD, options.built, place)
        check_use(options.built, old, options.torch, place / "used")
        for row, python in others(options.keep):
            check_other(options.built, row, python, place / f"{row.torch}-{row.python}")
    return 0


def check(condition: bool, statement: str, reason: object = "") -> None:
    """Print a statement if its condition is true; otherwise, exit with the reason."""
    if not condition:
        sys.exit(f"failed: {statement}\n{reason}")
    print(f"passed: {statement}", flush=True)


def check_reproducible(built: Path, keep: Path | None, again: Path) -> None:
    """Build everything again and compare the files."""
    build(PROJECT, again, keep)
    names = sorted(path.name for path in built.iterdir())
    _, other, missing = filecmp.cmpfiles(built, again, names, shallow=False)
    same = names == sorted(path.name for path in again.iterdir()) and not [*other, *missing]
    check(same, f"two builds are identical ({len(names)} files)", [*other, *missing])


def check_archive(built: Path, place: Path) -> None:
    """Build the wheel from the source archive alone, and compare the files."""
    [archive] = built.glob("hpu_magic-*.tar.gz")
    [wheel] = built.glob("hpu_magic-*.whl")
    shutil.unpack_archive(archive, place)
    [project] = place.iterdir()
    build(project, place / "dist", None, "--pure")
    same = filecmp.cmp(place / "dist" / wheel.name, wheel, shallow=False)
    check(same, "the source archive builds the same wheel")


def build(project: Path, into: Path, keep: Path | None, *options: str) -> None:
    """Run `make dist` in a source tree."""
    command = [sys.executable, "tools/dist.py", "--into", into, *options]
    times = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(times, cwd=PROJECT, capture_output=True, text=True, check=True)
    subprocess.run(
        [*command, *(["--keep", keep.resolve()] if keep else [])],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "SOURCE_DATE_EPOCH": done.stdout.strip()},
        check=True,
        capture_output=True,
    )


def built_as(version: str, built: Path, place: Path) -> Path:
    """Build the same tree with a different version, and return the folder of the built files."""
    [archive] = built.glob("hpu_magic-*.tar.gz")
    shutil.unpack_archive(archive, place / "old")
    [project] = (place / "old").iterdir()
    named = [project / "pyproject.toml", project / "hpu_magic" / "__init__.py"]
    named.append(project / "hpu_magic" / "labextension" / "package.json")
    for path in named:
        text = path.read_text()
        path.write_text(re.sub(rf"\b{re.escape(hpu_magic.__version__)}\b", version, text))
    build(project, place / "old-dist", None)
    return place / "old-dist"


def check_use(built: Path, old: Path, torch: str, place: Path) -> None:
    """Install, use and uninstall a package, in an environment with the packages of its extras."""
    sys.path.insert(0, str(PROJECT / "tools"))
    from requirements import described, of_extras

    environment = EmptyEnvironment(place, sys.executable)
    environment.install(torch)
    needed = [*described()["project"]["dependencies"], *of_extras(described(), "quickstart")]
    environment.install(torch, *needed)
    before = environment.files()
    what = ("hpu_magic[quickstart]", wheels.DISTRIBUTION)
    environment.install(*what, wheels=old, alone=True)
    check_device(environment, f"the older version {OLD}")
    environment.install("--upgrade", "--no-deps", "hpu_magic", wheels=built, alone=True)
    check_mixed(environment)
    environment.install("--upgrade", *what, wheels=built, alone=True)
    upgraded = environment.files()
    check_device(environment, "the device after the upgrade to the newer version")
    check_notebook(environment)
    check_page(environment)
    compiled = [path.name for path in environment.home.rglob("*.so")]
    check(not compiled, "nothing was compiled", compiled)
    uninstall(environment)
    after = environment.files()
    check(after == before, "no files are left after uninstalling", sorted(after ^ before))
    environment.install(*what, wheels=built, alone=True)
    fresh = environment.files()
    check(upgraded == fresh, "an upgrade and a new installation have equal files", upgraded ^ fresh)


def check_device(environment: EmptyEnvironment, what: str) -> None:
    """Compute on the device with an engine that pip installed."""
    done = environment.run(DEVICE, HPU_MAGIC_SIMULATOR="1")
    value, _, origin = done.stdout.strip().rpartition("\n")[2].partition(" ")
    installed = f"{wheels.DISTRIBUTION}_torch" in origin and str(environment.prefix) in origin
    check(value == "2.0" and installed, f"{what} computes on hpu without a compiler", done.stderr)


def check_mixed(environment: EmptyEnvironment) -> None:
    """Check that the error for an engine of the older version names the package to install."""
    done = environment.run("import torch; torch.ones(2, device='hpu')", HPU_MAGIC_SIMULATOR="1")
    refused = f"it belongs to hpu_magic {OLD}, but this is {hpu_magic.__version__}."
    offered = f'pip install "{wheels.DISTRIBUTION}=={hpu_magic.__version__}"'
    correct = done.returncode != 0 and refused in done.stderr and offered in done.stderr
    check(correct, "the error for another engine version names the package", done.stderr)


def check_notebook(environment: EmptyEnvironment) -> None:
    """Execute the quickstart with `jupyter execute`."""
    notebook = environment.folder / "quickstart.ipynb"
    shutil.copy(PROJECT / "notebooks" / notebook.name, notebook)
    done = subprocess.run(
        [environment.prefix / "bin" / "jupyter", "execute", "--inplace", notebook.name],
        env=environment.variables(),
        cwd=environment.folder,
        capture_output=True,
        text=True,
    )
    outputs = json.loads(notebook.read_text())["cells"][-1].get("outputs", [])
    check(
        not done.returncode and "Accuracy 0.9" in str(outputs), "the quickstart runs", done.stderr
    )


def check_page(environment: EmptyEnvironment) -> None:
    """Check the sidebar and the panel in a browser."""
    shutil.copy(PROJECT / "notebooks" / "quickstart.ipynb", environment.folder)
    chromium = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        print("skipped the sidebar, because there is no browser")
        return
    with environment.lab() as lab, page_of(chromium) as page:
        run_until_the_panel_moves(page, lab, "quickstart.ipynb")
        page.locator(".jp-SideBar [data-id='hpu_magic-sidebar']").click()
        page.locator("#hpu_magic-sidebar .hpu-Holder").first.wait_for()
        shown = page.locator("#hpu_magic-sidebar").inner_text()
    check("quickstart" in shown, "the panel moves, and the sidebar shows the card's holder", shown)


def uninstall(environment: EmptyEnvironment) -> None:
    """Uninstall all packages of the project."""
    listed = "import importlib.metadata as m; print(*{d.name for d in m.distributions()})"
    names = [name for name in environment.run(listed).stdout.split() if name.startswith(OWN)]
    environment.pip("uninstall", "--yes", *names)


def others(keep: Path | None) -> Iterator[tuple[wheels.Made, Path]]:
    """Yield the rows of other releases whose environments exist, such as those of make versions.

    The environments that make dist creates have only the packages that compile the engine.
    """
    for row in wheels.table():
        folder = keep and keep / f"torch-{row.torch}-python-{row.python}"
        if folder and any(folder.glob("lib/python*/site-packages/jupyterlab")):
            yield row, folder / "bin" / "python"
        else:
            print(
                f"skipped torch {row.torch} with Python {row.python}, because no environment has "
                "all packages"
            )


def check_other(built: Path, row: wheels.Made, python: Path, place: Path) -> None:
    """Check that pip does not replace another torch, and that the engine for it is loaded."""
    environment = borrowing(python, place)
    installed = environment.run("import torch; print(torch.__version__)").stdout
    environment.install(*OWN, wheels=built, alone=True)
    kept = environment.run("import torch; print(torch.__version__)").stdout
    check(kept == installed != "", f"torch {kept.strip()} remains with Python {row.python}", kept)
    done = environment.run(DEVICE, HPU_MAGIC_SIMULATOR="1")
    loaded = f"/{wheels.package(row.torch)}/" in done.stdout and "2.0 " in done.stdout
    check(loaded, f"torch {row.torch} loads its engine", done.stderr)


def borrowing(python: Path, place: Path) -> EmptyEnvironment:
    """Create an environment that also contains the packages of another one."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    environment = EmptyEnvironment(place, str(python))
    own = environment.run(code).stdout.strip()
    (Path(own) / "borrowed.pth").write_text(f"{done.stdout.strip()}\n")
    return environment


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
