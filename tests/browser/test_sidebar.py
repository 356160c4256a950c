"""Test sidebar, status bar and mode switch in a real JupyterLab and a real Chromium."""

import json
import os

import nbformat
import pytest
from conftest import NOTIFYING
from holding_notebook import HoldingNotebook
from lab_page import (
    LOAD,
    OPEN_SIDEBAR,
    PATIENCE,
    STATUS,
    SWITCH,
    choose_theme,
    keep_screenshot,
    open_notebook,
    output,
    press,
    restart,
    run_all,
    run_notebook,
    screenshots,
    show_notebook,
    shown_notebook,
    wait_for_output,
    wait_for_text,
    wait_until,
)

pytestmark = pytest.mark.browser

MODE = "from habana_frameworks.torch.utils.internal import is_lazy\n"
MODE += "print('loaded', 'lazy' if is_lazy() else 'eager')"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    """A machine with a single card."""
    folder = tmp_path_factory.mktemp("one_card")
    with forking_lab(folder, NOTIFYING, HPU_MAGIC_CARDS="1") as running:
        yield running


def restart_and_run_all(page):
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_text("Restart Kernel and Run All Cells…", exact=True).click()
    press(page, "Confirm Kernel Restart")


def saved_mode(page, lab, name):
    """Save the notebook and return the mode that is stored in the file."""
    before = (lab.folder / name).stat().st_mtime_ns
    page.keyboard.press("Control+s")
    wait_until(
        page, lambda: (lab.folder / name).stat().st_mtime_ns != before, f"the saving of {name}"
    )
    page.wait_for_timeout(500)
    return str(json.loads((lab.folder / name).read_text())["metadata"]["hpu_magic"]["mode"])


def test_mode_switch_restarts_the_kernel_in_lazy_mode(page, lab, tmp_path):
    variable = "import os; print('variable', os.environ.get('PT_HPU_LAZY_MODE'))"
    run_notebook(page, lab, "mode.ipynb", variable, LOAD, MODE)
    wait_for_output(page, 2, "loaded eager")
    assert "variable None" in output(page, 0)
    switch = page.locator(SWITCH)
    wait_until(page, lambda: switch.input_value() == "eager", "the loaded mode in the switch")

    switch.select_option("lazy")
    press(page, "Later")
    chosen = switch.locator("option:checked")
    wait_until(
        page,
        lambda: chosen.inner_text() == "eager → lazy after restart",
        "the requested mode in the switch",
    )
    toolbar = shown_notebook(page).locator(".jp-NotebookPanel-toolbar")
    keep_screenshot(page, toolbar, "mode-switch.png", tmp_path)

    # The mode is set before the first cell of the new kernel.
    restart_and_run_all(page)
    wait_for_output(page, 2, "loaded lazy")
    assert "variable 1" in output(page, 0)
    wait_until(page, lambda: chosen.inner_text() == "lazy", "the loaded mode in the switch")

    switch.select_option("eager")
    restart(page)
    run_all(page)
    wait_for_output(page, 2, "loaded eager")
    assert saved_mode(page, lab, "mode.ipynb") == "eager"


def test_page_follows_a_kernel_that_did_not_reply_for_a_while(page, lab):
    cells = [nbformat.v4.new_code_cell(LOAD)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), lab.folder / "stuck.ipynb")
    take = "kept = torch.empty({} << 30, dtype=torch.uint8, device='hpu')"
    notebook = HoldingNotebook(lab, "stuck.ipynb", f"{LOAD}\n{take.format(1)}")
    show_notebook(page, lab, "stuck.ipynb")
    wait_for_text(page, STATUS, "1.00 / 96 GiB")
    # The process holds the interpreter's lock for longer than three requests wait.
    stuck = "import ctypes; ctypes.PyDLL(None).usleep(20_000_000)"
    for source in (stuck, take.format(2)):
        reply = notebook.client.execute_interactive(source, timeout=PATIENCE)
        assert reply["content"]["status"] == "ok"
    wait_for_text(page, STATUS, "2.00 / 96 GiB")
    notebook.close()


def test_mode_typed_in_a_cell_is_stored_with_the_notebook(page, lab):
    run_notebook(page, lab, "typed.ipynb", LOAD, "%hpu_mode lazy")
    chosen = page.locator(SWITCH).locator("option:checked")
    wait_until(
        page,
        lambda: chosen.count() > 0 and chosen.inner_text() == "eager → lazy after restart",
        "the typed mode in the switch",
    )
    assert saved_mode(page, lab, "typed.ipynb") == "lazy"


def test_plain_notebook_shows_neither_switch_nor_status(page, lab):
    run_notebook(page, lab, "plain.ipynb", "print('hello')")
    wait_for_output(page, 0, "hello")
    page.wait_for_timeout(1_000)
    assert not page.locator(SWITCH).is_visible()
    assert not page.locator(STATUS).is_visible()


def test_sidebar_recovers_after_the_server_was_killed(page, lab):
    open_notebook(page, lab, "lost.ipynb", LOAD)
    page.locator(OPEN_SIDEBAR).click()
    wait_for_text(page, ".hpu-Cards-headline", "1 Gaudi2 card simulated")
    lab.kill()
    wait_for_text(page, ".hpu-Notice-title", "Connection to the server lost")
    lab.start()
    notice = page.locator(".hpu-Notice")
    wait_until(page, lambda: not notice.is_visible(), "the recovery of the sidebar")
    wait_for_text(page, ".hpu-Cards-headline", "1 Gaudi2 card simulated")
    # JupyterLab reports the kernel's end and its own requests that failed without the server.
    expected = "Failed to fetch", "Kernel is dead"
    page.problems[:] = [problem for problem in page.problems if problem not in expected]


def keep_upper_part(page, view, last, name, folder):
    """Take a screenshot of a view, down to the end of its last part."""
    box, part = page.locator(view).bounding_box(), page.locator(last).bounding_box()
    box["height"] = part["y"] + part["height"] + 8 - box["y"]
    page.screenshot(path=screenshots(folder) / name, clip=box)


def test_sidebar_shows_several_cards_in_both_themes(own_page, start_lab, tmp_path):
    moving = "from time import sleep\n\nbatches = []\nfor step in range(6000):\n"
    moving += "    batches.append(torch.empty(1 << 30, dtype=torch.uint8, device='hpu'))\n"
    moving += "    if len(batches) > {most}:\n        del batches[:{freed}]\n    sleep(0.2)"
    sidebar = ".hpu-Cards", ".hpu-Cards-list"
    own_page.set_viewport_size({"width": 1120, "height": 680})
    lab = start_lab(NOTIFYING, HPU_MAGIC_CARDS="4")
    for name, most, freed in (("train.ipynb", 80, 52), ("evaluate.ipynb", 22, 17)):
        cells = LOAD, moving.format(most=most, freed=freed)
        open_notebook(own_page, lab, name, *cells, workspace="cards")
        if not own_page.locator(".hpu-Cards").is_visible():
            own_page.locator(OPEN_SIDEBAR).click()
        run_all(own_page)
        own_page.wait_for_timeout(1_500)  # the workspace is saved a moment after a change
    wait_for_text(own_page, ".hpu-Holder-name", "evaluate.ipynb")
    # A screenshot needs some history.
    own_page.wait_for_timeout(45_000 if "HPU_MAGIC_SCREENSHOTS" in os.environ else 2_000)
    names = own_page.locator(".hpu-Holder-name").all_inner_texts()
    assert names == ["train.ipynb", "evaluate.ipynb"]
    assert "2 in use" in own_page.locator(".hpu-Cards-headline").inner_text()
    wait_for_text(own_page, STATUS, "HPU 1 · eager · ")
    own_page.screenshot(path=screenshots(tmp_path) / "jupyterlab.png")
    keep_upper_part(own_page, *sidebar, "sidebar.png", tmp_path)
    choose_theme(own_page, "JupyterLab Dark")
    keep_upper_part(own_page, *sidebar, "sidebar-dark.png", tmp_path)
    choose_theme(own_page, "JupyterLab Light")
    own_page.locator(".hpu-Card-title").first.click()
    own_page.locator(".hpu-CardCharts canvas").first.wait_for()
    own_page.wait_for_timeout(1_500)
    charts = ".hpu-CardCharts", ".hpu-CardCharts-charts"
    keep_upper_part(own_page, *charts, "card.png", tmp_path)
