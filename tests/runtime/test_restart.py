"""The remembered restart, with a real Jupyter server."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

PATIENCE = 90.0


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return the first true value of `condition`."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("It did not come about in time.")


class Server:
    """A Jupyter server on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.token = secrets.token_hex(16)
        self.runtime = folder / "runtime"
        self.runtime.mkdir()
        settings = {**os.environ, "JUPYTER_RUNTIME_DIR": str(self.runtime)}
        settings.pop("JPY_PARENT_PID", None)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
                *("--ip=127.0.0.1", "--port=0", f"--IdentityProvider.token={self.token}"),
                f"--ServerApp.root_dir={folder}",
            ],
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.info = wait_for(self._started)

    def _started(self) -> Any:
        assert self.process.poll() is None
        try:
            return json.loads((self.runtime / f"jpserver-{self.process.pid}.json").read_text())
        except (OSError, ValueError):
            return None

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.info['url']}api/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.loads(answer.read())

    def connect(self, kernel_id: str) -> BlockingKernelClient:
        client = BlockingKernelClient()
        client.load_connection_file(str(self.runtime / f"kernel-{kernel_id}.json"))
        client.start_channels()
        client.wait_for_ready(timeout=PATIENCE)
        return client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.terminate()
    server.process.wait(timeout=30)


def run(client: BlockingKernelClient, source: str) -> str:
    """Run a cell and return all text that it sent."""
    texts: list[str] = []

    def collect(message: dict[str, Any]) -> None:
        content = message["content"]
        texts.append(content.get("text", "") or content.get("data", {}).get("text/plain", ""))
        texts.append(content.get("evalue", ""))

    client.execute_interactive(source, output_hook=collect, timeout=PATIENCE)
    return "".join(texts)


def test_restart_brings_the_notebook_back_in_the_new_mode(server):
    session = {"path": "work.ipynb", "name": "work.ipynb", "type": "notebook"}
    kernel_id = server.ask("sessions", {**session, "kernel": {"name": "python3"}})["kernel"]["id"]
    client = server.connect(kernel_id)
    first = int(run(client, "import os; print(os.getpid())"))
    run(client, "%load_ext hpu_magic")
    run(client, "import torch")
    assert "%hpu_mode lazy --restart" in run(client, "%hpu_mode lazy")
    assert "restarts now in lazy mode" in run(client, "%hpu_mode lazy --restart")
    wait_for(lambda: not Path(f"/proc/{first}").exists())
    client.stop_channels()
    wait_for(lambda: server.ask(f"kernels/{kernel_id}")["execution_state"] != "dead")

    client = server.connect(kernel_id)
    second = int(run(client, "import os; print(os.getpid())"))
    assert second != first
    assert "PT_HPU_LAZY_MODE=1" in run(client, "%load_ext hpu_magic")
    assert run(client, "os.environ['PT_HPU_LAZY_MODE']") == "'1'"
    state = run(client, "%hpu_mode")
    assert "requested  lazy" in state
    client.stop_channels()
