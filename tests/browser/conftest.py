"""A real JupyterLab on the loopback interface and a real Chromium to look at it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)
QUIET_LAB = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, its token and the folder it serves."""

    url: str
    token: str
    folder: Path

    def address(self, path: str) -> str:
        """Return the address that opens ``path`` of the served folder."""
        return f"{self.url}/lab/workspaces/{Path(path).stem}/tree/{path}?token={self.token}"

    def kernel_states(self, path: str) -> list[str]:
        """Return the states of the kernels that run the notebook ``path``."""
        with urllib.request.urlopen(f"{self.url}/api/sessions?token={self.token}") as answer:
            sessions = json.load(answer)
        return [one["kernel"]["execution_state"] for one in sessions if one["path"] == path]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_served(url: str, token: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with code {process.returncode}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/api/status?token={token}", timeout=2).close()
            return
        time.sleep(0.2)
    raise TimeoutError("JupyterLab did not answer within 60 s")


@contextlib.contextmanager
def run_lab(folder: Path) -> Iterator[Lab]:
    """Run JupyterLab on ``folder`` with settings, data and cards of its own."""
    settings = folder / ".settings"
    for plugin, values in QUIET_LAB.items():
        package, name = plugin.split(":")
        file = settings / package / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    port, token = free_port(), secrets.token_hex(16)
    environment = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "IPYTHONDIR": str(folder / ".ipython"),
        "HPU_MAGIC_CARDS_DIR": str(folder / ".cards"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += ["--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={folder}", "--LabApp.extension_manager=readonly"]
    with (folder / "jupyterlab.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            lab = Lab(f"http://127.0.0.1:{port}", token, folder)
            wait_until_served(lab.url, token, process)
            yield lab
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="session")
def chromium() -> str:
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on PATH")


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        yield running
        running.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with run_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running
