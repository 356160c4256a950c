"""The remembered restart, with a real Jupyter server."""

from __future__ import annotations

import importlib.util
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


MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4)).eval()
x = torch.randn(16, 8)
%hpu_to model --dtype bf16
"""


@pytest.mark.skipif(
    importlib.util.find_spec("neural_compressor") is None,
    reason="neural-compressor-pt is not installed; it needs Python 3.11",
)
def test_a_restart_lies_between_the_two_steps_of_fp8_inference(server):
    session = {"path": "fp8.ipynb", "name": "fp8.ipynb", "type": "notebook"}
    kernel_id = server.ask("sessions", {**session, "kernel": {"name": "python3"}})["kernel"]["id"]
    client = server.connect(kernel_id)
    first = int(run(client, "import os; print(os.getpid())"))
    run(client, "%load_ext hpu_magic")
    run(client, MODEL)
    assert "Sequential measured for fp8" in run(client, "%hpu_fp8_measure model --inputs x")
    assert "restart the kernel (or add --restart)" in run(
        client, "%hpu_fp8_quantize model --inputs x"
    )
    assert "restarts now" in run(client, "%hpu_fp8_quantize model --inputs x --restart")
    wait_for(lambda: not Path(f"/proc/{first}").exists())
    client.stop_channels()
    wait_for(lambda: server.ask(f"kernels/{kernel_id}")["execution_state"] != "dead")

    client = server.connect(kernel_id)
    run(client, "%load_ext hpu_magic")
    run(client, MODEL)
    shown = run(client, "%hpu_fp8_quantize model --inputs x")
    assert "Sequential quantized to fp8 (E4M3)" in shown
    assert "relative error of the output" in shown
    client.stop_channels()
