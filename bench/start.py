"""Time from ``pip install`` to the first live panel, relative to the time to install torch.

Both installations use a warm pip cache and environments that contain only the newest pip, because
the speed of pip depends on its release. The wheels are built in the same way as by `make dist`, but
only with the engine for this torch. Installing torch from the public index takes minutes, so the
noise is small and one installation is enough. If this environment contains a different build of
torch, that build is also measured, twice.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.harness import Figure, seconds

NOTEBOOK = Path("notebooks/quickstart.ipynb")
OURS = ("hpu_magic[quickstart]", "hpu_magic_engine")
KINDS = {
    "install": ("installing quickstart and engine", None),
    "move": ("from installation to a panel that shows a fit", 1.3),
}


def figures() -> Iterator[Figure]:
    from tests.browser.conftest import CHROMIUM_NAMES
    from tools.empty_environment import page_of

    chromium = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        print("no browser found: the time until the panel appears is not measured", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="hpu_magic_start_") as folder:
        place, wheels = Path(folder), Path(folder) / "dist"
        os.environ["PIP_CACHE_DIR"] = str(place / "cache")
        command = [sys.executable, "tools/dist.py", "--cached", "--into", wheels]
        subprocess.run(command, check=True, capture_output=True)
        with page_of(chromium) as page:
            for torch, requirement in builds_of_torch().items():
                names = ("warm", "first", "second") if "+" in torch else ("warm", "first")
                first, *rounds = (Round(place / torch / n, requirement, wheels) for n in names)
                first.fill_pips_cache()
                for each in rounds:
                    each.run(page)
                for kind, (head, target) in KINDS.items():
                    ratio = statistics.median(
                        getattr(each, kind) / each.baseline for each in rounds
                    )
                    name = f"{head} / {torch} and JupyterLab"
                    yield Figure(name, ratio, "ratio", target)


def builds_of_torch() -> dict[str, str]:
    """Return pip requirements for torch from the index and, if different, the installed build."""
    import torch

    here = str(torch.__version__)
    release, _, build = here.partition("+")
    builds = {"torch": f"torch==={release}"}
    if build:
        builds[f"torch+{build}"] = f"torch==={here}"
    return builds


class Round:
    """Times one installation of torch and one of hpu_magic."""

    def __init__(self, place: Path, torch: str, wheels: Path) -> None:
        self.place, self.torch, self.wheels = place, torch, wheels
        self.baseline = self.install = self.move = 0.0

    def fill_pips_cache(self) -> None:
        """Download all packages that the timed installations need."""
        environment = self._environment("cache")
        fetched = str(environment.folder / "fetched")
        wheels = ("--find-links", str(self.wheels.resolve()))
        environment.pip("download", "--dest", fetched, *wheels, self.torch, *OURS)
        shutil.rmtree(environment.prefix.parent)

    def run(self, page: Any) -> None:
        """Time the installation of torch and JupyterLab, and the steps to a live panel."""
        bare = self._environment("bare")
        self.baseline = seconds(lambda: bare.install(self.torch, "jupyterlab"))
        shutil.rmtree(bare.prefix)
        self.until_the_panel_moves(page)

    def until_the_panel_moves(self, page: Any) -> None:
        """Install the built wheels, start JupyterLab and run the notebook."""
        from tools.empty_environment import run_until_the_panel_moves

        environment = self._environment("ours")
        shutil.copy(NOTEBOOK, environment.folder)
        start = perf_counter()
        environment.install(self.torch, *OURS, wheels=self.wheels)
        self.install = perf_counter() - start
        with environment.lab() as lab:
            run_until_the_panel_moves(page, lab, NOTEBOOK.name)
            self.move = perf_counter() - start
        shutil.rmtree(environment.prefix)

    def _environment(self, name: str) -> Any:
        from tools.empty_environment import EmptyEnvironment

        environment = EmptyEnvironment(self.place / name, sys.executable)
        environment.pip("install", "--upgrade", "pip")
        return environment
