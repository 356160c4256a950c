"""Test cells with a magic in a real kernel: display, await, interrupt."""

import pytest
from notebook_kernel import running_kernel

AUTOCAST = "print(torch.is_autocast_enabled('hpu'))"


@pytest.fixture(scope="module")
def kernel(forked_kernels):
    with forked_kernels(), running_kernel() as kernel:
        kernel("import asyncio, time, torch")
        yield kernel


def test_last_expression_is_the_cells_result(kernel):
    assert kernel("%%hpu_autocast\nx = 20\nx + 1").shown == [{"text/plain": "21"}]
    assert kernel("print(_)").printed == "21\n"


def test_report_is_html_and_text_after_the_result(kernel):
    cell = kernel("%%hpu_memory\nx = torch.ones(1024, device='hpu')\n6 * 7")
    result, report = cell.shown
    assert result == {"text/plain": "42"}
    assert "<table>" in report["text/html"]
    assert "left in x" in report["text/plain"]


def test_await_runs_inside_autocast(kernel):
    cell = kernel(f"%%hpu_autocast\n{AUTOCAST}\nawait asyncio.sleep(0.01, 'slept')")
    assert cell.printed == "True\n"
    assert cell.shown == [{"text/plain": "'slept'"}]
    assert kernel(AUTOCAST).printed == "False\n"


# The sleeps are short because the kernel's event loop notices an interrupt when it wakes.
@pytest.mark.parametrize(
    "wait", ["time.sleep(0.1)", "await asyncio.sleep(0.1)", "torch.ones(9, device='hpu')"]
)
def test_interrupted_cell_restores_the_state(kernel, wait):
    source = f"%%hpu_autocast\nprint('begun')\nwhile True: {wait}"
    cell = kernel(source, interrupt_after="begun")
    assert "KeyboardInterrupt" in cell.error or "CancelledError" in cell.error
    assert kernel(AUTOCAST).printed == "False\n"
