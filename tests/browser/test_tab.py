"""Test completion with Tab in a real JupyterLab."""

import pytest
from lab_page import offered_by_tab, run_notebook, wait_until

pytestmark = pytest.mark.browser


def test_tab_completes_modes_and_options(page, lab):
    run_notebook(page, lab, "tab.ipynb", "%load_ext hpu_magic", "%hpu_mode")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    wait_until(page, lambda: "[2]" in cells.nth(1).inner_text(), "the end of the cells")
    assert offered_by_tab(page, 1, " ") == {"eager", "lazy"}
    page.keyboard.press("Escape")
    assert offered_by_tab(page, 1, "--") == {"--output", "--restart"}
