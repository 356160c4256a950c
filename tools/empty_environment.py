"""An empty environment for installing with pip, without a compiler, Node or a checkout."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.browser.conftest import (
    CHROMIUM_FLAGS,
    QUIET_LAB,
    Lab,
    free_port,
    write_settings,
)

# Environment variables that a new login session also has.
_KEPT = ("LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS")
_KEPT_BY_PIP = ("PIP_", "SSL_CERT", "REQUESTS_CA", "HTTP", "HTTPS", "NO_PROXY", "http", "no_proxy")


class EmptyEnvironment:
    """A virtual environment with its own home and working folder below `place`."""

    def __init__(self, place: Path, interpreter: str) -> None:
        self.prefix, self.home, self.folder = place / "venv", place / "home", place / "work"
        for folder in (self.home, self.folder):
            folder.mkdir(parents=True)
        subprocess.run([interpreter, "-I", "-m", "venv", self.prefix], check=True)
        self.python = self.prefix / "bin" / "python"

    def variables(self, **more: str) -> dict[str, str]:
        """Return environment variables with only the programs of this environment on PATH."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {
            **kept,
            "PATH": str(self.prefix / "bin"),
            "HOME": str(self.home),
            "HPU_MAGIC_CARDS_DIR": str(self.home / "cards"),
            **more,
        }

    def pip(self, *arguments: str | Path) -> None:
        """Run pip with the environment variables for indexes and proxies."""
        own = {name: value for name, value in os.environ.items() if name.startswith(_KEPT_BY_PIP)}
        command = [self.python, "-I", "-m", "pip", "--disable-pip-version-check", *arguments, "-q"]
        subprocess.run(command, env=self.variables() | own, cwd=self.folder, check=True)

    def install(self, *requirements: str, wheels: Path | None = None, alone: bool = False) -> None:
        """Install from the index and a folder of wheels, or only from the folder (`alone`)."""
        found = ["--find-links", str(wheels.resolve())] if wheels else []
        self.pip("install", *(["--no-index"] if alone else []), *found, *requirements)

    def run(self, code: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run code in a process of the environment, in its working folder."""
        return subprocess.run(
            [self.python, "-c", code],
            env=self.variables(**more),
            cwd=self.folder,
            capture_output=True,
            text=True,
        )

    def files(self) -> set[str]:
        """Return the paths of all files in the environment, relative to its root."""
        return {
            str(path.relative_to(self.prefix))
            for path in self.prefix.rglob("*")
            if not path.is_dir() or not any(path.iterdir())
        }

    @contextlib.contextmanager
    def lab(self) -> Iterator[Lab]:
        """Run this environment's JupyterLab in its working folder."""
        port, token = free_port(), secrets.token_hex(16)
        command = [str(self.python), "-m", "jupyterlab", "--no-browser", "--allow-root"]
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
        command += ["--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}"]
        command += [f"--ServerApp.root_dir={self.folder}", "--LabApp.extension_manager=readonly"]
        settings = write_settings(self.home / "settings", QUIET_LAB)
        environment = self.variables(JUPYTERLAB_SETTINGS_DIR=str(settings))
        url = f"http://127.0.0.1:{port}"
        lab = Lab(url, token, self.folder, command, environment)
        try:
            lab.start()
            yield lab
        finally:
            lab.stop()


@contextlib.contextmanager
def page_of(chromium: str) -> Iterator[Any]:
    """Open an empty page in a browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(120_000)
        yield page
        browser.close()


def run_until_the_panel_moves(page: Any, lab: Lab, notebook: str) -> None:
    """Open a notebook, run all cells, and wait until a panel has shown three states."""
    page.goto(lab.address(notebook))
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    panel = page.locator(".jp-Notebook .hpu-magic-live").first
    panel.wait_for(state="attached")
    seen: set[str] = set()
    while len(seen) < 3:
        seen.add(str(panel.text_content()))
        page.wait_for_timeout(50)
