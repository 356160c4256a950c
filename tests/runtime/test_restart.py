"""Test a kernel restart with remembered settings, on a real Jupyter server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_python import ForkedPython
from optional import needs_compressor
from running_server import Server, run
from started_process import wait_for


@pytest.fixture
def server(tmp_path: Path, forked_python: ForkedPython) -> Iterator[Server]:
    server = Server(tmp_path, forked_python)
    yield server
    server.process.terminate()
    server.process.wait(timeout=30)


class Notebook:
    """A notebook with a kernel on the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        session = {"path": "work.ipynb", "name": "work.ipynb", "type": "notebook"}
        created = server.ask("sessions", {**session, "kernel": {"name": "python3"}})
        self._kernel_id = created["kernel"]["id"]
        self._connect()

    def __call__(self, source: str) -> str:
        return run(self._client, source)

    def _connect(self) -> None:
        self._client = self._server.connect(self._kernel_id)
        self._pid = int(self("import os; print(os.getpid())"))

    def wait_for_restart(self) -> None:
        before = self._pid
        wait_for(lambda: not Path(f"/proc/{before}").exists())
        self._client.stop_channels()
        kernel = f"kernels/{self._kernel_id}"
        wait_for(lambda: self._server.ask(kernel)["execution_state"] != "dead")
        self._connect()
        assert self._pid != before


@pytest.fixture
def notebook(server: Server) -> Iterator[Notebook]:
    notebook = Notebook(server)
    yield notebook
    notebook._client.stop_channels()


def test_restart_starts_the_notebook_in_the_requested_mode(notebook):
    notebook("%load_ext hpu_magic")
    notebook("import torch")
    assert "%hpu_mode lazy --restart" in notebook("%hpu_mode lazy")
    assert "Restarting the kernel in lazy mode" in notebook("%hpu_mode lazy --restart")
    notebook.wait_for_restart()
    assert "PT_HPU_LAZY_MODE=1" in notebook("%load_ext hpu_magic")
    assert notebook("os.environ['PT_HPU_LAZY_MODE']") == "'1'"
    assert "requested  lazy" in notebook("%hpu_mode")


def test_restart_releases_the_card_and_reports_its_memory(notebook):
    notebook("%load_ext hpu_magic")
    notebook("import torch\nx = torch.ones(1 << 20, device='hpu')")
    shown = notebook("%hpu_restart")
    assert "Restarting the kernel and releasing HPU" in shown
    assert "4.00 MiB" in shown
    notebook.wait_for_restart()
    assert "none in use yet" in notebook("%load_ext hpu_magic\n%hpu")


MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4)).eval()
x = torch.randn(16, 8)
%hpu_to model --dtype bf16
"""


@needs_compressor
def test_restart_separates_the_two_steps_of_fp8_inference(notebook):
    notebook("%load_ext hpu_magic")
    notebook(MODEL)
    assert "Sequential measured for fp8" in notebook("%hpu_fp8_measure model --inputs x")
    quantize = "%hpu_fp8_quantize model --inputs x"
    assert "restart the kernel (or add --restart)" in notebook(quantize)
    assert "is restarting" in notebook(f"{quantize} --restart")
    notebook.wait_for_restart()
    notebook("%load_ext hpu_magic")
    notebook(MODEL)
    shown = notebook(quantize)
    assert "Sequential quantized to fp8 (E4M3)" in shown
    assert "relative output error" in shown
