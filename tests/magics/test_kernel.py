"""Cells under a magic in a real kernel: display, await, interrupt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel


class Kernel:
    """A running kernel and what its cells send back."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    def run(self, source: str, *, interrupt_after: str | None = None) -> list[dict[str, Any]]:
        """Run a cell and return its messages; interrupt it when it has printed a text."""
        request = self.client.execute(source)
        messages = []
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            messages.append({"type": message["msg_type"], **content})
            if interrupt_after is not None and interrupt_after in content.get("text", ""):
                time.sleep(0.2)
                self.manager.interrupt_kernel()
            if content.get("execution_state") == "idle":
                return messages


def of_type(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [message for message in messages if message["type"] == kind]


def printed(messages: list[dict[str, Any]]) -> str:
    return "".join(message["text"] for message in of_type(messages, "stream"))


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        kernel = Kernel(manager, client)
        assert "SIMULATED" in printed(
            kernel.run("%load_ext hpu_magic\nimport asyncio, time, torch")
        )
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


AUTOCAST = "print(torch.is_autocast_enabled('hpu'))"


def test_last_expression_is_the_cells_result(kernel):
    messages = kernel.run("%%hpu_autocast\nx = 20\nx + 1")
    (result,) = of_type(messages, "execute_result")
    assert result["data"]["text/plain"] == "21"
    assert printed(kernel.run("print(_)")) == "21\n"


def test_report_comes_as_html_and_text_below_the_result(kernel):
    messages = kernel.run("%%hpu_memory\nx = torch.ones(1024, device='hpu')\n6 * 7")
    (result,) = of_type(messages, "execute_result")
    (report,) = of_type(messages, "display_data")
    assert messages.index(result) < messages.index(report)
    assert "<table>" in report["data"]["text/html"]
    assert "left in x" in report["data"]["text/plain"]


def test_await_runs_under_the_magic(kernel):
    messages = kernel.run(f"%%hpu_autocast\n{AUTOCAST}\nawait asyncio.sleep(0.01, 'slept')")
    assert printed(messages) == "True\n"
    (result,) = of_type(messages, "execute_result")
    assert result["data"]["text/plain"] == "'slept'"
    assert printed(kernel.run(AUTOCAST)) == "False\n"


# The sleeps are short because the kernel's event loop notices an interrupt when it wakes.
@pytest.mark.parametrize(
    "wait", ["time.sleep(0.1)", "await asyncio.sleep(0.1)", "torch.ones(9, device='hpu')"]
)
def test_interrupted_cell_restores_the_state(kernel, wait):
    messages = kernel.run(
        f"%%hpu_autocast\nprint('begun')\nwhile True: {wait}", interrupt_after="begun"
    )
    (error,) = of_type(messages, "error")
    assert error["ename"] in ("KeyboardInterrupt", "CancelledError")
    assert printed(kernel.run(AUTOCAST)) == "False\n"


def test_traceback_shows_the_users_line(kernel):
    (error,) = of_type(kernel.run("%%hpu_memory\nx = 1\n\nx / 0"), "error")
    assert error["ename"] == "ZeroDivisionError"
    assert "line 4" in "".join(error["traceback"])


def test_wrong_option_is_a_sentence(kernel):
    messages = kernel.run("%%hpu_autocast --dtype fp9\nprint('ran')")
    assert "UsageError: %%hpu_autocast" in printed(messages)
    assert "ran" not in printed(messages).split()
