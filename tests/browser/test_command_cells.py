"""Test outputs of commands in both themes, and completion with Tab, in a real JupyterLab."""

import pytest
from lab_page import (
    LOAD,
    choose_theme,
    faint_texts,
    offered_by_tab,
    run_notebook,
    screenshots,
    wait_for_output,
    wait_until,
)

pytestmark = pytest.mark.browser


def test_reports_are_legible_in_both_themes(page, lab, tmp_path):
    cells = (
        LOAD,
        "%hpu_ledger on\n%hpu",
        "torch.ones(3, device='hpu').sum().item()",
        "%hpu_memory",
        "%hpu_flags",
        "import os\nos.environ['PT_HPU_SYNC_LAUNCH'] = '1'\n%hpu_doctor",
        "%hpu_ledger",
        "%hpu_ledger last",
        "%%hpu_profile --no-trace\ntorch.ones(3, device='hpu') + 1",
        "torch.ones(1 << 50, device='hpu')",
    )
    run_notebook(page, lab, "legible.ipynb", *cells)
    wait_for_output(page, len(cells) - 1, "The requested allocation is larger than ")
    for folded in page.locator(".jp-OutputArea-output details").all():
        folded.evaluate("details => { details.open = true }")
    for theme in ("Light", "Dark"):
        choose_theme(page, f"JupyterLab {theme}")
        assert faint_texts(page, ".jp-RenderedHTMLCommon") == []
        page.screenshot(path=screenshots(tmp_path) / f"reports-{theme.lower()}.png")


def test_tab_completes_modes_and_options(page, lab):
    run_notebook(page, lab, "tab.ipynb", "%load_ext hpu_magic", "%hpu_mode")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    wait_until(page, lambda: "[2]" in cells.nth(1).inner_text(), "the end of the cells")
    assert offered_by_tab(page, 1, " ") == {"eager", "lazy"}
    page.keyboard.press("Escape")
    assert offered_by_tab(page, 1, "--") == {"--output", "--restart"}
