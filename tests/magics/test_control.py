"""What front ends ask of a kernel over its control channel."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

import hpu_magic

RESTORE = "__import__('hpu_magic.magics.control', fromlist=['_']).restore_mode({!r})"


class Kernel:
    """A kernel that is run cells in and asked questions at the same time."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(self, source: str, **options: Any) -> str:
        """Run a cell and return what it printed, or its error."""
        texts: list[str] = []

        def collect(message: dict[str, Any]) -> None:
            content = message["content"]
            texts.append(content.get("text", "") + content.get("evalue", ""))

        self.client.execute_interactive(source, output_hook=collect, timeout=120, **options)
        return "".join(texts)

    def value(self, expression: str) -> Any:
        return json.loads(self.run(f"import json; print(json.dumps({expression}))"))

    def ask(self, what: str, timeout: float = 20, **content: Any) -> dict[str, Any]:
        """Send a request on the control channel and return the content of its reply."""
        channel = self.client.control_channel
        request = self.client.session.msg(f"hpu_magic_{what}_request", content)
        channel.send(request)
        reply = channel.get_msg(timeout=timeout)
        assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
        assert reply["msg_type"] == f"hpu_magic_{what}_reply"
        return reply["content"]

    def wait_until_printed(self, text: str) -> None:
        while text not in self.client.get_iopub_msg(timeout=120)["content"].get("text", ""):
            pass


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start kernels of one notebook; all of them end with the test."""
    started = []

    def start_kernel(**environment: str) -> Kernel:
        settings = {**os.environ, "JPY_SESSION_NAME": str(tmp_path / "work.ipynb"), **environment}
        manager, client = start_new_kernel(kernel_name="python3", env=settings)
        started.append((manager, client))
        return Kernel(client)

    yield start_kernel
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_status_before_torch_is_loaded(start):
    kernel = start()
    kernel.run("%load_ext hpu_magic")
    assert kernel.ask("status") == {
        "status": "ok",
        "version": hpu_magic.__version__,
        "simulated": True,
        "loaded": None,
        "requested": None,
        "card": None,
        "in_use": None,
        "peak": None,
        "limit": None,
        "fit": None,
    }
    assert not kernel.value("'torch' in __import__('sys').modules")


def test_status_tells_memory_while_a_cell_runs(start, tmp_path):
    kernel = start(HPU_MAGIC_CARDS_DIR=str(tmp_path / "cards"), HLS_MODULE_ID="3")
    kernel.run("%load_ext hpu_magic\nimport torch, time")
    assert kernel.ask("status")["card"] is None
    kernel.run("x = torch.ones(1000, 1000, device='hpu'); y = x + 1; del x")
    stats = kernel.value("torch.hpu.memory_stats()")
    answered = tmp_path / "answered"
    kernel.client.execute(
        f"import os; print('begun', flush=True)\n"
        f"while not os.path.exists({str(answered)!r}): time.sleep(0.05)"
    )
    kernel.wait_until_printed("begun")
    answer = kernel.ask("status", timeout=60)
    answered.touch()
    assert (answer["loaded"], answer["card"]) == ("eager", 3)
    assert answer["in_use"] == stats["InUse"] >= 4_000_000
    assert answer["peak"] == stats["MaxInUse"] >= 8_000_000
    assert answer["limit"] == stats["Limit"]


def test_status_is_told_at_once_while_torch_is_being_imported(start):
    kernel = start()
    kernel.run("%load_ext hpu_magic")
    kernel.client.execute("print('begun', flush=True); import torch")
    kernel.wait_until_printed("begun")
    importing = 0
    while not (answer := kernel.ask("status", timeout=60))["loaded"]:
        importing += 1
    assert importing > 1
    assert answer["loaded"] == "eager"


def test_chosen_mode_is_requested_and_comes_with_the_next_kernel(start):
    kernel = start()
    kernel.run("%load_ext hpu_magic\nimport torch")
    assert kernel.ask("mode", mode="lazy") == {
        "status": "ok",
        "loaded": "eager",
        "requested": "lazy",
        "needs_restart": True,
    }
    status = kernel.ask("status")
    assert (status["loaded"], status["requested"]) == ("eager", "lazy")
    successor = start()
    assert "PT_HPU_LAZY_MODE=1" in successor.run("%load_ext hpu_magic")
    successor.run("import torch")
    assert successor.ask("status")["loaded"] == "lazy"


@pytest.mark.parametrize("content", [{"mode": "lasy"}, {"mode": ["lazy"]}, {}])
def test_unknown_mode_is_a_sentence_and_changes_nothing(start, content):
    kernel = start()
    kernel.run("%load_ext hpu_magic")
    answer = kernel.ask("mode", **content)
    assert answer["status"] == "error"
    assert "Unknown execution mode" in answer["message"]
    if content == {"mode": "lasy"}:
        assert "'lazy'" in answer["message"]
    assert kernel.ask("status")["requested"] is None


def test_unloaded_extension_answers_no_more(start):
    kernel = start()
    kernel.run("%load_ext hpu_magic\n%unload_ext hpu_magic")
    handlers = "list(get_ipython().kernel.control_handlers)"
    assert not [name for name in kernel.value(handlers) if "hpu_magic" in name]
    kernel.run("%load_ext hpu_magic")
    assert kernel.ask("status")["status"] == "ok"


def test_stored_mode_is_restored_before_the_first_cell_and_in_silence(start):
    kernel = start()
    assert kernel.run(RESTORE.format("lazy"), silent=True) == ""
    assert kernel.value("__import__('os').environ['PT_HPU_LAZY_MODE']") == "1"
    assert not kernel.value("[n for n in ('torch', 'bokeh') if n in __import__('sys').modules]")
    assert not kernel.value("'hpu_magic' in get_ipython().extension_manager.loaded")
    kernel.run("%load_ext hpu_magic\nimport torch")
    status = kernel.ask("status")
    assert (status["loaded"], status["requested"]) == ("lazy", "lazy")


def test_mode_typed_after_the_stored_one_wins_at_the_next_start(start):
    first = start()
    first.run(RESTORE.format("eager"), silent=True)
    first.run("%load_ext hpu_magic\nimport torch\n%hpu_mode lazy")
    second = start()
    second.run(RESTORE.format("eager"), silent=True)
    second.run("%load_ext hpu_magic\nimport torch")
    assert second.ask("status")["loaded"] == "lazy"


def test_newly_stored_mode_wins_over_one_that_was_typed_before(start):
    first = start()
    first.run("%load_ext hpu_magic\n%hpu_mode lazy")
    second = start()
    second.run(RESTORE.format("eager"), silent=True)
    assert second.value("__import__('os').environ['PT_HPU_LAZY_MODE']") == "0"
    second.run("%load_ext hpu_magic\nimport torch")
    status = second.ask("status")
    assert (status["loaded"], status["requested"]) == ("eager", "eager")
