"""Busy cards in a real JupyterLab: who holds one is told, and gives it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import NOTIFYING, Lab, run_lab
from lab_page import (
    DIALOG,
    LOAD,
    STATUS,
    SWITCH,
    busy_prompt,
    keep_screenshot,
    open_notebook,
    press,
    run_all,
    wait_for_output,
    wait_for_text,
    wait_until,
)

pytestmark = pytest.mark.browser

TAKE = "kept = torch.empty(3 << 30, dtype=torch.uint8, device='hpu')\nprint('took a card')"
TOAST = ".Toastify__toast"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A machine with a single card."""
    folder = tmp_path_factory.mktemp("one_card")
    with run_lab(folder, NOTIFYING, HPU_MAGIC_CARDS="1") as running:
        yield running


def test_second_notebook_is_told_who_holds_the_card_and_frees_it(
    page: Any, lab: Lab, tmp_path: Path
) -> None:
    busy = f"{TAKE}\nimport time; time.sleep(8)"
    open_notebook(page, lab, "first.ipynb", LOAD, busy, workspace="cards")
    run_all(page)
    wait_for_text(page, STATUS, "HPU 0 · eager · 3.00 / 96 GiB", 60)
    assert busy_prompt(page, 1), "the status bar has to tell while the cell runs"
    keep_screenshot(
        page, page.locator("#jp-main-statusbar .jp-StatusBar-Left"), "status-bar.png", tmp_path
    )
    wait_until(page, lambda: not busy_prompt(page, 1), 20, "the end of the cell")

    open_notebook(page, lab, "second.ipynb", LOAD, TAKE, workspace="cards")
    run_all(page)
    wait_for_text(page, TOAST, "HPU 0 is busy: first.ipynb holds it.", 60)
    keep_screenshot(page, page.locator(TOAST), "busy-card.png", tmp_path)

    page.locator(STATUS).click()
    row = page.locator(".hpu-Card")
    wait_for_text(page, ".hpu-Card .hpu-Holder-name", "first.ipynb")
    assert row.count() == 1
    page.locator(TOAST).get_by_role("button", name="Shut down kernel").click()
    assert "first.ipynb" in page.locator(DIALOG).inner_text()
    press(page, "Shut Down")
    wait_for_text(page, TOAST, "HPU 0 is free. Run the cell again.")
    wait_for_text(page, ".hpu-Card-state", "free")
    assert [one["path"] for one in lab.sessions()] == ["second.ipynb"]

    run_all(page)
    wait_for_output(page, 1, "took a card")
    wait_for_text(page, ".hpu-Card .hpu-Holder-name", "second.ipynb")
    assert page.problems == []


def test_one_of_several_holders_is_chosen_and_another_window_keeps_up(
    page: Any, browser: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with run_lab(tmp_path_factory.mktemp("two_cards"), NOTIFYING, HPU_MAGIC_CARDS="2") as lab:
        for name in ("first.ipynb", "second.ipynb"):
            open_notebook(page, lab, name, LOAD, TAKE)
            run_all(page)
            wait_for_output(page, 1, "took a card")
        open_notebook(page, lab, "third.ipynb", LOAD, TAKE)
        run_all(page)
        wait_for_text(page, TOAST, "No card is free: first.ipynb and second.ipynb hold them.", 60)
        page.locator(TOAST).get_by_role("button", name="Shut down kernel…").click()
        choices = page.locator(DIALOG).get_by_role("combobox")
        choices.select_option("HPU 1: second.ipynb")
        press(page, "Ok")
        assert "The kernel of second.ipynb holds HPU 1" in page.locator(DIALOG).inner_text()
        press(page, "Shut Down")
        wait_for_text(page, TOAST, "HPU 1 is free. Run the cell again.")
        run_all(page)
        wait_for_output(page, 1, "took a card")

        # Nothing is saved, so that the file tells another window nothing of what ran.
        other = browser.new_page()
        other.goto(lab.address("third.ipynb", "other"))
        wait_for_text(other, STATUS, "HPU 1 · eager · 3.00 / 96 GiB", 60)
        page.locator(SWITCH).select_option("lazy")
        press(page, "Restart")
        wait_until(page, lambda: lab.kernel_states("third.ipynb") == ["idle"], 30, "the restart")
        page.wait_for_timeout(1_000)
        run_all(page)
        wait_for_text(other, STATUS, "HPU 1 · lazy", 60)
        other.close()
    assert page.problems == []
