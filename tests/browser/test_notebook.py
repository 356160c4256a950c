"""Test panel and card pages in a real Notebook 7, if it is installed."""

import importlib.util
import re

import nbformat
import pytest
from lab_page import (
    busy_prompt,
    faint_texts,
    run_all,
    screenshots,
    wait_until,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        importlib.util.find_spec("notebook") is None, reason="Notebook 7 is not installed"
    ),
]
CELLS = ".jp-Notebook .jp-CodeCell"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    with forking_lab(tmp_path_factory.mktemp("notebook"), application="notebook") as running:
        yield running


def open_notebook(page, lab, name, *cells):
    document = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    nbformat.write(document, lab.folder / name)
    page.on("console", lambda line: line.type == "error" and page.problems.append(line.text))
    page.goto(f"{lab.url}/notebooks/{name}?token={lab.token}")
    page.wait_for_selector(CELLS)
    wait_until(page, lambda: "idle" in lab.kernel_states(name), "the start of the kernel")
    page.wait_for_timeout(1_000)  # the page needs time to receive the kernel's state


@pytest.fixture
def page(module_page):
    yield module_page
    problems, module_page.problems = module_page.problems, []
    # Notebook itself causes this error.
    assert [each for each in problems if "reading 'schema'" not in each] == []


def test_memory_panel_is_live_in_notebook_7(page, lab):
    allocate = "import torch, time\nfor step in range(6000):\n"
    allocate += "    kept = torch.zeros(step % 60 + 1, 1 << 18, device='hpu')\n    time.sleep(0.1)"
    open_notebook(
        page,
        lab,
        "memory.ipynb",
        "%load_ext hpu_magic",
        "%hpu_memory_live --interval 0.1",
        allocate,
    )
    run_all(page)
    cells = page.locator(CELLS)
    wait_until(page, lambda: "MiB in use" in cells.nth(1).inner_text(), "memory in use")
    before = cells.nth(1).inner_text()
    wait_until(page, lambda: cells.nth(1).inner_text() != before, "a change of memory")
    assert busy_prompt(page, 2), "the panel must be updated while another cell is busy"
    page.get_by_role("button", name="Stop").click()
    cells.nth(1).locator(".jp-RenderedSVG").wait_for()


def tabs(page):
    """Return the tabs of Notebook's file page."""
    return page.locator(".jp-TreePanel .lm-TabBar-tab")


def check_cards(page, tmp_path):
    """Check the tab of all cards, and open the tab of a card and close it."""
    assert page.locator(".hpu-Card").count() == 8
    assert "8 Gaudi2 cards" in page.locator(".hpu-Cards-headline").inner_text()
    assert faint_texts(page, ".hpu-Cards") == []
    page.screenshot(path=screenshots(tmp_path) / "notebook-cards.png")

    page.locator(".hpu-Card-title").nth(2).focus()
    page.keyboard.press("Enter")
    page.locator(".hpu-CardCharts-number", has_text="HPU 2").wait_for()
    page.locator(".hpu-Chart-plot canvas").first.wait_for()
    tabs(page).filter(has_text="HPU 2").locator(".lm-TabBar-tabCloseIcon").click()
    assert [tab.inner_text() for tab in tabs(page).all()] == ["Files", "Running", "HPU cards"]


def test_menu_of_a_notebook_opens_card_pages(page, lab, tmp_path):
    if page.url == "about:blank":
        open_notebook(page, lab, "menu.ipynb", "1")
    for entry, address, shown in (
        ("Show HPU Cards", "/tree#hpu-cards", ".hpu-Card"),
        ("Open HPU Overview", "/tree#hpu-overview", ".hpu-Past-row"),
    ):
        page.get_by_role("menuitem", name="View", exact=True).click()
        with page.expect_popup() as opened:
            page.get_by_role("menuitem", name=re.compile(entry)).click()
        other = opened.value
        other.locator(shown).first.wait_for()
        assert other.url == lab.url + address
        assert other.locator(shown).count() == 8
        if shown == ".hpu-Card":
            check_cards(other, tmp_path)
        other.close()
