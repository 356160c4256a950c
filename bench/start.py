"""From ``pip install`` to the first panel that moves, beside the installation of what it runs on.

Both sides install into environments that are empty but for the newest pip, which reads an index in
a third of the time that pip took three years ago, and with all that they get in pip's cache. What
`make dist` builds is built here, with the engine of this torch alone. Torch is the one that pip
finds first in the public index, which takes minutes, so that seconds of noise are little: it is
installed once. The build that runs here is installed twice.
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
KINDS = {"install": ("installing quickstart and engine", None), "move": ("to a moving panel", 1.3)}


def figures() -> Iterator[Figure]:
    from tests.browser.conftest import CHROMIUM_NAMES
    from tools.empty_environment import page_of

    chromium = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        print("no browser: nobody sees the panel move", flush=True)
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
                for one in rounds:
                    one.run(page)
                for kind, (head, target) in KINDS.items():
                    ratio = statistics.median(getattr(one, kind) / one.baseline for one in rounds)
                    name = f"{head} / {torch} and JupyterLab"
                    yield Figure(name, ratio, "ratio", target)


def builds_of_torch() -> dict[str, str]:
    """Return what pip is asked for: the index's build, and another that is installed here."""
    import torch

    here = str(torch.__version__)
    release, _, build = here.partition("+")
    builds = {"torch": f"torch==={release}"}
    if build:
        builds[f"torch+{build}"] = f"torch==={here}"
    return builds


class Round:
    """One installation of each, and how long it took."""

    def __init__(self, place: Path, torch: str, wheels: Path) -> None:
        self.place, self.torch, self.wheels = place, torch, wheels
        self.baseline = self.install = self.move = 0.0

    def fill_pips_cache(self) -> None:
        """Fetch all that one of the environments gets."""
        environment = self._environment("cache")
        fetched = str(environment.folder / "fetched")
        wheels = ("--find-links", str(self.wheels.resolve()))
        environment.pip("download", "--dest", fetched, *wheels, self.torch, *OURS)
        shutil.rmtree(environment.prefix.parent)

    def run(self, page: Any) -> None:
        """Time the installation of torch and JupyterLab, then ours and the notebook's start."""
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

    def _environment(self, what: str) -> Any:
        from tools.empty_environment import EmptyEnvironment

        environment = EmptyEnvironment(self.place / what, sys.executable)
        environment.pip("install", "--upgrade", "pip")
        return environment
