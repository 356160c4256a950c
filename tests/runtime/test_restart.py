"""The remembered restart, with a real Jupyter server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import Server, run, wait_for


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.terminate()
    server.process.wait(timeout=30)


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
