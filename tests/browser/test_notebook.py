"""A live panel and completion in a real Notebook 7, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from conftest import Lab, run_lab
from lab_page import busy_prompt, offered_by_tab, run_all, wait_until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        importlib.util.find_spec("notebook") is None, reason="Notebook 7 is not installed"
    ),
]
CELLS = ".jp-Notebook .jp-CodeCell"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with run_lab(tmp_path_factory.mktemp("notebook"), application="notebook") as running:
        yield running


def open_notebook(page: Any, notebook: Lab, name: str, *cells: str) -> None:
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    nbformat.write(document, notebook.folder / name)
    page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
    page.goto(f"{notebook.url}/notebooks/{name}?token={notebook.token}")
    page.wait_for_selector(CELLS, timeout=60_000)
    wait_until(page, lambda: "idle" in notebook.kernel_states(name), 60, "the start of the kernel")
    page.wait_for_timeout(1_000)  # the page hears of it a moment later


def problems_of_ours(page: Any) -> list[str]:
    """Errors on the page and in its console, but one that Notebook meets in its own settings."""
    return [each for each in page.problems if "reading 'schema'" not in each]


def test_memory_panel_moves_in_notebook_7(page: Any, notebook: Lab) -> None:
    allocate = "import torch, time\nkept = []\nfor _ in range(60):\n"
    allocate += "    kept.append(torch.zeros(1 << 18, device='hpu'))\n    time.sleep(0.1)"
    open_notebook(
        page, notebook, "memory.ipynb", "%load_ext hpu_magic", "%hpu_panel --interval 0.1", allocate
    )
    run_all(page)
    cells = page.locator(CELLS)
    wait_until(page, lambda: "MiB in use" in cells.nth(1).inner_text(), 240, "memory in use")
    before = cells.nth(1).inner_text()
    wait_until(page, lambda: cells.nth(1).inner_text() != before, 10, "a change of memory")
    assert busy_prompt(page, 2), "the panel has to move while another cell is busy"
    page.get_by_role("button", name="Stop").click()
    cells.nth(1).locator(".jp-RenderedSVG").wait_for(timeout=20_000)
    assert problems_of_ours(page) == []


def test_tab_offers_the_modes_in_notebook_7(page: Any, notebook: Lab) -> None:
    open_notebook(page, notebook, "tab.ipynb", "%load_ext hpu_magic", "%hpu_mode")
    run_all(page)
    cells = page.locator(CELLS)
    wait_until(page, lambda: "[2]" in cells.nth(1).inner_text(), 60, "the end of the cells")
    assert offered_by_tab(page, 1, " ") == {"eager", "lazy"}
    assert problems_of_ours(page) == []
