"""A Jupyter server on the loopback interface, and actions of a user with its kernels."""

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from forked_python import ForkedPython
from jupyter_client.blocking.client import BlockingKernelClient
from started_process import wait_for

PATIENCE = 90.0


class Server:
    """A Jupyter server on the loopback interface, whose kernels are forks."""

    def __init__(self, folder: Path, python: ForkedPython) -> None:
        self.token = secrets.token_hex(16)
        self.runtime = folder / "runtime"
        self.runtime.mkdir()
        settings = {**os.environ, "JUPYTER_RUNTIME_DIR": str(self.runtime)}
        settings.pop("JPY_PARENT_PID", None)
        requests = python.requests.fileno()
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(Path(__file__).with_name("forking_server.py"))),
                *(str(requests), "jupyter_server", "--no-browser", "--allow-root"),
                *("--ip=127.0.0.1", "--port=0", f"--IdentityProvider.token={self.token}"),
                f"--ServerApp.root_dir={folder}",
            ],
            env=settings,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[requests],
        )
        self.info = wait_for(self._started)
        wait_for(self._answers)  # the server writes the file earlier

    def _started(self) -> Any:
        assert self.process.poll() is None
        try:
            return json.loads((self.runtime / f"jpserver-{self.process.pid}.json").read_text())
        except (OSError, ValueError):
            return None

    def _answers(self) -> Any:
        try:
            return self.ask("status")
        except urllib.error.URLError:
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
        return connected(self.runtime, kernel_id)


def connected(runtime: Path, kernel_id: str) -> BlockingKernelClient:
    """Return a client of a kernel that is ready, by its file in the runtime folder."""
    client = BlockingKernelClient()
    client.load_connection_file(str(runtime / f"kernel-{kernel_id}.json"))
    client.start_channels()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client.wait_for_ready(timeout=PATIENCE)
            return client
        except RuntimeError:  # a starting kernel may have no heartbeat for a moment
            if time.monotonic() > deadline:
                raise


def run(client: BlockingKernelClient, source: str) -> str:
    """Run a cell and return the text of its outputs."""
    texts: list[str] = []

    def collect(message: dict[str, Any]) -> None:
        content = message["content"]
        texts.append(content.get("text", "") or content.get("data", {}).get("text/plain", ""))
        texts.append(content.get("evalue", ""))

    client.execute_interactive(source, output_hook=collect, timeout=PATIENCE)
    return "".join(texts)
