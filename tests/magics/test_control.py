"""Test requests of front ends on a kernel's control channel."""

from contextlib import ExitStack

import pytest
from notebook_kernel import running_kernel

import hpu_magic

RESTORE = "__import__('hpu_magic.magics.control', fromlist=['_']).restore_mode({!r})"


@pytest.fixture
def start(tmp_path, forked_kernels):
    """Start kernels of one notebook, without the extension."""
    with forked_kernels(), ExitStack() as running:
        notebook = {"JPY_SESSION_NAME": str(tmp_path / "work.ipynb")}
        yield lambda **variables: running.enter_context(running_kernel("", **notebook, **variables))


def test_status_has_no_card_before_torch_is_imported(start):
    kernel = start()
    kernel("%load_ext hpu_magic")
    assert kernel.request("status") == {
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


def test_status_contains_memory_while_a_cell_runs(start, tmp_path):
    kernel = start(HPU_MAGIC_CARDS_DIR=str(tmp_path / "cards"), HLS_MODULE_ID="3")
    kernel("%load_ext hpu_magic\nimport torch, time")
    assert kernel.request("status")["card"] is None
    kernel("x = torch.ones(1000, 1000, device='hpu'); y = x + 1; del x")
    stats = kernel.value("torch.hpu.memory_stats()")
    answered = tmp_path / "answered"
    kernel.client.execute(
        f"import os; print('begun', flush=True)\n"
        f"while not os.path.exists({str(answered)!r}): time.sleep(0.05)"
    )
    kernel.wait_until_printed("begun")
    answer = kernel.request("status", timeout=60)
    answered.touch()
    assert (answer["loaded"], answer["card"]) == ("eager", 3)
    assert answer["in_use"] == stats["InUse"] >= 4_000_000
    assert answer["peak"] == stats["MaxInUse"] >= 8_000_000
    assert answer["limit"] == stats["Limit"]


def test_status_is_available_during_the_import_of_torch():
    with running_kernel() as kernel:
        kernel.client.execute("print('begun', flush=True); import torch")
        kernel.wait_until_printed("begun")
        importing = 0
        while not (answer := kernel.request("status", timeout=60))["loaded"]:
            importing += 1
    assert importing > 1
    assert answer["loaded"] == "eager"


def test_requested_mode_applies_to_the_next_kernel(start):
    kernel = start()
    kernel("%load_ext hpu_magic\nimport torch")
    assert kernel.request("mode", mode="lazy") == {
        "status": "ok",
        "loaded": "eager",
        "requested": "lazy",
        "needs_restart": True,
    }
    status = kernel.request("status")
    assert (status["loaded"], status["requested"]) == ("eager", "lazy")
    successor = start()
    assert "PT_HPU_LAZY_MODE=1" in successor("%load_ext hpu_magic").text
    successor("import torch")
    assert successor.request("status")["loaded"] == "lazy"


@pytest.mark.parametrize("content", [{"mode": "lasy"}, {"mode": ["lazy"]}, {}])
def test_unknown_mode_returns_an_error_and_changes_nothing(start, content):
    kernel = start()
    kernel("%load_ext hpu_magic")
    answer = kernel.request("mode", **content)
    assert answer["status"] == "error"
    assert "Unknown execution mode" in answer["message"]
    if content == {"mode": "lasy"}:
        assert "'lazy'" in answer["message"]
    assert kernel.request("status")["requested"] is None


def test_unload_ext_removes_the_control_handlers(start):
    kernel = start()
    kernel("%load_ext hpu_magic\n%unload_ext hpu_magic")
    handlers = "list(get_ipython().kernel.control_handlers)"
    assert not [name for name in kernel.value(handlers) if "hpu_magic" in name]
    kernel("%load_ext hpu_magic")
    assert kernel.request("status")["status"] == "ok"


def test_stored_mode_is_restored_silently_before_the_first_cell(start):
    kernel = start()
    assert kernel(RESTORE.format("lazy"), silent=True).text.strip() == ""
    assert kernel.value("__import__('os').environ['PT_HPU_LAZY_MODE']") == "1"
    assert not kernel.value("[n for n in ('torch', 'bokeh') if n in __import__('sys').modules]")
    assert not kernel.value("'hpu_magic' in get_ipython().extension_manager.loaded")
    kernel("%load_ext hpu_magic\nimport torch")
    status = kernel.request("status")
    assert (status["loaded"], status["requested"]) == ("lazy", "lazy")


def test_typed_mode_overrides_the_earlier_stored_mode(start):
    first = start()
    first(RESTORE.format("eager"), silent=True)
    first("%load_ext hpu_magic\nimport torch\n%hpu_mode lazy")
    second = start()
    second(RESTORE.format("eager"), silent=True)
    second("%load_ext hpu_magic\nimport torch")
    assert second.request("status")["loaded"] == "lazy"


def test_newly_stored_mode_overrides_the_earlier_typed_mode(start):
    first = start()
    first("%load_ext hpu_magic\n%hpu_mode lazy")
    second = start()
    second(RESTORE.format("eager"), silent=True)
    assert second.value("__import__('os').environ['PT_HPU_LAZY_MODE']") == "0"
    second("%load_ext hpu_magic\nimport torch")
    status = second.request("status")
    assert (status["loaded"], status["requested"]) == ("eager", "eager")
