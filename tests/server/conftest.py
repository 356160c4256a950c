"""A Jupyter server in a child process, with a base URL and three simulated cards."""

import json
import os
import secrets
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import websocket
from jupyter_client.blocking.client import BlockingKernelClient
from started_process import started_python, wait_for

PROJECT = Path(__file__).parents[2]
BASE_URL = "/user/ann/"
PATIENCE = 60.0

ACQUIRE = "from hpu_magic.simulator import cards; cards.acquire()"
HOLD = f"{ACQUIRE}\nprint(flush=True)\ninput()\n"

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Answer:
    """A response of the server."""

    status: int
    headers: Any
    text: str

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def refusal(self):
        return self.status, self.json["message"]


class Stream:
    """A client of the stream."""

    def __init__(self, address, **options):
        options.setdefault("suppress_origin", "origin" not in options)
        self.socket = websocket.create_connection(address, timeout=PATIENCE, **options)

    def message(self):
        return json.loads(self.socket.recv())

    def snapshot(self, condition=lambda _: True):
        """Return the next snapshot for which `condition` is true."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            message = self.message()
            if message["type"] == "snapshot" and condition(message):
                return message
        raise AssertionError("No such snapshot arrived in time.")

    def closed(self):
        """Wait until the server closes the stream, and return its code."""
        while True:
            opcode, data = self.socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return int.from_bytes(data[:2], "big")

    def close(self):
        self.socket.close()


class Server:
    """A Jupyter server on the loopback interface, whose kernels are forks."""

    def __init__(self, python, folder, *arguments, **environment):
        self.token = secrets.token_hex(16)
        self.runtime = folder / "runtime"
        self.notebooks = folder / "notebooks"
        for directory in (self.runtime, self.notebooks):
            directory.mkdir()
        settings = {
            **os.environ,
            "JUPYTER_RUNTIME_DIR": str(self.runtime),
            # The installed configuration file enables the extension.
            "JUPYTER_CONFIG_PATH": str(PROJECT / "jupyter-config"),
            "HPU_MAGIC_CARDS_DIR": str(folder / "cards"),
            "HPU_MAGIC_CARDS": "3",
            "HPU_MAGIC_MEMORY": "4GiB",
            **environment,
        }
        self.environment = settings
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [
                *(sys.executable, str(Path(__file__).with_name("serve.py"))),
                *(str(python.requests.fileno()), "--no-browser"),
                *("--allow-root", "--ip=127.0.0.1", "--port=0"),
                f"--IdentityProvider.token={self.token}",
                f"--ServerApp.root_dir={self.notebooks}",
                f"--ServerApp.base_url={BASE_URL}",
                *arguments,
            ],
            env=settings,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            pass_fds=[python.requests.fileno()],
        )
        assert self.process.stdout is not None
        self.routes = json.loads(self.process.stdout.readline())
        wait_for(self._started)

    def _started(self):
        assert self.process.poll() is None
        try:
            place = self.runtime / f"jpserver-{self.process.pid}.json"
            self.url = json.loads(place.read_text())["url"]
            return self.ask("api/status").status == 200
        except (OSError, ValueError):
            return False

    def ask(self, path, method="GET", body=None, **headers):
        """Send a request, with the server's token unless there are other headers."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=headers or {"Authorization": f"token {self.token}"},
            method=method,
        )
        try:
            with _direct.open(request, timeout=PATIENCE) as answer:
                return Answer(answer.status, answer.headers, answer.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read().decode())

    def stream(self, query="", **options):
        """Connect to the stream, with the server's token unless there are other options."""
        options = options or {"header": [f"Authorization: token {self.token}"]}
        return Stream(f"ws{self.url.removeprefix('http')}hpu_magic/stream{query}", **options)

    def cards(self):
        return self.ask("hpu_magic/snapshot").json["cards"]

    def readers(self):
        """Return the processes that read cards for this server."""

        def reads(process):
            try:
                return "hpu_magic.server.reader" in process.cmdline()
            except psutil.NoSuchProcess:  # it has ended
                return False

        return [child for child in psutil.Process(self.process.pid).children() if reads(child)]

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=30)
        self.log.close()


class Notebook:
    """The session of a notebook and its kernel."""

    def __init__(self, server, path):
        name = path.rpartition("/")[2]
        session = {"path": path, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        self.server = server
        self.session = server.ask("api/sessions", "POST", session).json
        self.kernel = self.session["kernel"]["id"]
        self.client = BlockingKernelClient()
        self.client.load_connection_file(str(server.runtime / f"kernel-{self.kernel}.json"))
        self.client.start_channels()
        wait_for(self._ready)

    def _ready(self):
        try:
            self.client.wait_for_ready(timeout=PATIENCE)
        except RuntimeError:
            # On a busy machine, a starting kernel misses heartbeats and seems dead.
            return False
        return True

    def run(self, source):
        """Run a cell and return its output."""
        printed: list[str] = []

        def collect(message):
            assert message["msg_type"] != "error", message["content"]
            printed.append(message["content"].get("text", ""))

        self.client.execute_interactive(
            textwrap.dedent(source), output_hook=collect, timeout=PATIENCE
        )
        return "".join(printed)

    def close(self):
        self.client.stop_channels()
        self.server.ask(f"api/sessions/{self.session['id']}", "DELETE")


@pytest.fixture(scope="module")
def server(tmp_path_factory, forked_python):
    """A server for all tests of a module."""
    with closing(Server(forked_python, tmp_path_factory.mktemp("server"))) as server:
        yield server


@pytest.fixture
def notebook(server):
    """Open notebooks, and close them after the test."""
    with ExitStack() as opened:
        yield lambda path: opened.enter_context(closing(Notebook(server, path)))


@pytest.fixture
def outsider(server):
    """Start processes outside Jupyter that hold a card."""
    with ExitStack() as running:
        yield lambda *arguments, **options: running.enter_context(
            holding(server, *arguments, **options)
        )


def holding(server, *arguments, script="hold.py", code=HOLD):
    """Start a script that holds a card of a server."""
    (server.notebooks / script).write_text(code)
    place = {"cwd": server.notebooks, "env": server.environment}
    return started_python(script, *arguments, **place)
