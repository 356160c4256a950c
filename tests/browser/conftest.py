"""A real JupyterLab on the loopback interface and a real Chromium."""

import contextlib
import functools
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
FORKING_SERVER = Path(__file__).parents[1] / "forking_server.py"
START = 240  # seconds that the start of a server may take on a busy machine
NOTIFYING = {
    **QUIET_LAB,
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}


@dataclass
class Lab:
    """A JupyterLab process with its address, token and root folder."""

    url: str
    token: str
    folder: Path
    command: list[str]
    environment: dict[str, str]
    python: Any = None  # the `ForkedPython` whose forks are the server and its kernels
    process: Any = None

    def start(self):
        """Start the server; the address is the same after `stop` or `kill`."""
        with (self.folder / "jupyterlab.log").open("ab") as log:
            options = {"env": self.environment, "stdout": log, "stderr": log}
            if self.python is None:
                self.process = subprocess.Popen(self.command, **options)
            else:
                self.process = self.python.popen(
                    self.command,
                    **options,
                    pass_fds=[self.python.requests.fileno()],
                    hides_torch=True,
                )
        wait_until_served(self.url, self.token, self.process)

    def stop(self):
        """End the server and its kernels."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5 if self.python is None else 1)
            except subprocess.TimeoutExpired:
                # The server waits for threads that still handle a request.
                self.kill()

    def kill(self):
        """Kill the server to simulate a crash; its kernels end, too."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)
        for file in (self.folder / ".runtime").glob("kernel-*.pid"):
            pid = int(file.read_text())
            if self.python.has_forked(pid):
                os.kill(pid, signal.SIGKILL)

    def address(self, path, workspace=None):
        """Return the URL that opens ``path`` in the root folder."""
        workspace = workspace or Path(path).stem
        return f"{self.url}/lab/workspaces/{workspace}/tree/{path}?token={self.token}"

    def sessions(self):
        """Return the notebooks that have a kernel."""
        with urllib.request.urlopen(f"{self.url}/api/sessions?token={self.token}") as answer:
            sessions: list[dict[str, Any]] = json.load(answer)
        return sessions

    def end_kernel(self, kernel):
        """Shut down a kernel, as another page would."""
        url = f"{self.url}/api/kernels/{kernel}?token={self.token}"
        urllib.request.urlopen(urllib.request.Request(url, method="DELETE")).close()

    def kernel_states(self, path):
        """Return the states of the kernels that run the notebook ``path``."""
        return [
            session["kernel"]["execution_state"]
            for session in self.sessions()
            if session["path"] == path
        ]


def free_port():
    """Return a free port outside the range from which Linux assigns ports."""
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until_served(url, token, process):
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with code {process.wait()}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/api/status?token={token}", timeout=2).close()
            return
        time.sleep(0.2)
    raise TimeoutError(f"JupyterLab did not answer within {START} s")


def write_settings(folder, settings):
    """Write settings of JupyterLab's plugins and return the folder."""
    for plugin, values in settings.items():
        package, name = plugin.split(":")
        file = folder / package / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    return folder


@contextlib.contextmanager
def run_lab(folder, settings=QUIET_LAB, application="jupyterlab", python=None, **environment):
    """Run JupyterLab or Notebook 7 in ``folder`` with private settings, data and cards.

    The server and its kernels are forks of the `ForkedPython` ``python`` if it is set. PYTHONPATH
    has no effect on forks.
    """
    overrides = write_settings(folder / ".settings", settings)
    port, token = free_port(), secrets.token_hex(16)
    private = {
        "JUPYTERLAB_SETTINGS_DIR": str(overrides),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "IPYTHONDIR": str(folder / ".ipython"),
        "HPU_MAGIC_CARDS_DIR": str(folder / ".cards"),
    }
    started = ["-m", application]
    if python is not None:
        started = [str(FORKING_SERVER), str(python.requests.fileno()), application]
    command = [sys.executable, *started, "--no-browser", "--allow-root"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += ["--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={folder}", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.expose_app_in_browser=True"]
    url = f"http://127.0.0.1:{port}"
    lab = Lab(url, token, folder, command, {**os.environ, **private, **environment}, python)
    try:
        lab.start()
        yield lab
    finally:
        lab.stop()


def pytest_collection_modifyitems(items):
    """Give browser tests a longer time limit than other tests."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def chromium():
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on PATH")


@pytest.fixture(scope="session")
def browser(chromium):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        yield running
        running.close()


@pytest.fixture(scope="session")
def forking_lab():
    """`run_lab` with forks, because imports of servers and kernels take seconds."""
    from forked_python import ForkedPython  # benchmarks cannot import this module

    # Not JupyterLab, which reads environment variables when it is imported
    python = ForkedPython("ipykernel.ipkernel", "jupyter_server.serverapp")
    yield functools.partial(run_lab, python=python)
    python.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory, forking_lab):
    with forking_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def start_lab(tmp_path, forking_lab):
    """Return a function that starts a server for one test."""
    with contextlib.ExitStack() as servers:
        yield lambda *settings, **environment: servers.enter_context(
            (run_lab if "PYTHONPATH" in environment else forking_lab)(
                tmp_path, *settings, **environment
            )
        )


@contextlib.contextmanager
def windows_of(browser):
    """A function that opens a page in another browser window, without shared data."""
    from lab_page import PATIENCE  # benchmarks cannot import this module

    with contextlib.ExitStack() as windows:

        def opened(width=1280, height=1000, **options):
            window = browser.new_context(viewport={"width": width, "height": height}, **options)
            window.set_default_timeout(1000 * PATIENCE)
            return windows.enter_context(window).new_page()

        yield opened


def first_page(opened):
    """Open a page that collects its errors in ``problems``."""
    page = opened(device_scale_factor=2 if "HPU_MAGIC_SCREENSHOTS" in os.environ else 1)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    return page


@pytest.fixture
def new_page(browser):
    """Return a function that opens a page in another browser window, without shared data."""
    with windows_of(browser) as opened:
        yield opened


@pytest.fixture
def own_page(new_page, start_lab):
    """A page for a test that starts a server."""
    # This fixture depends on `start_lab`, so that the page closes before the server stops.
    # Otherwise, JupyterLab's failing requests would be recorded as problems.
    page = first_page(new_page)
    yield page
    page.close()
    assert page.problems == []


@pytest.fixture(scope="module")
def module_page(browser, lab):
    """A page for all tests of a module, because each page of JupyterLab takes seconds to load."""
    with windows_of(browser) as opened:
        yield first_page(opened)


@pytest.fixture
def page(module_page):
    """The page of the module, without tabs and kernels of earlier tests."""
    from lab_page import close_everything

    yield module_page
    problems = [*module_page.problems]
    close_everything(module_page)
    module_page.problems.clear()
    assert problems == []
