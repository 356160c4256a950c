"""Test busy cards in a real JupyterLab: showing and shutting down their holders."""

import json

import pytest
from conftest import NOTIFYING
from holding_notebook import HoldingNotebook
from lab_page import (
    DIALOG,
    LOAD,
    OPEN_SIDEBAR,
    STATUS,
    SWITCH,
    busy_prompt,
    choose_theme,
    faint_texts,
    keep_screenshot,
    press,
    restart,
    run_all,
    run_notebook,
    wait_for_output,
    wait_for_text,
    wait_until,
)

from hpu_magic import private_folder

pytestmark = pytest.mark.browser

TAKE = "kept = torch.empty(3 << 30, dtype=torch.uint8, device='hpu')\nprint('took a card')"
TOAST = ".Toastify__toast"


def age_session(page, notebook, seconds):
    """Increase the idle time in the session file of a notebook's kernel."""
    folder = private_folder.found()
    assert folder is not None

    def aged():
        for path in (folder / "sessions").iterdir():
            session = json.loads(path.read_text())
            if session["notebook"] == str(notebook) and session["idle_since"]:
                session["idle_since"] -= seconds
                path.write_text(json.dumps(session))
                return True
        return False

    wait_until(page, aged, f"the idleness of {notebook.name}")


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    """A machine with a single card."""
    folder = tmp_path_factory.mktemp("one_card")
    with forking_lab(folder, NOTIFYING, HPU_MAGIC_CARDS="1") as running:
        yield running


def test_second_notebook_names_the_holder_and_frees_the_card(page, lab, tmp_path):
    busy = f"{TAKE}\nimport os, time\nwhile not os.path.exists('end'):\n    time.sleep(0.1)"
    run_notebook(page, lab, "first.ipynb", LOAD, busy, workspace="cards")
    wait_for_text(page, STATUS, "HPU 0 · eager · 3.00 / 96 GiB")
    assert busy_prompt(page, 1), "the status bar must show memory while the cell runs"
    keep_screenshot(
        page, page.locator("#jp-main-statusbar .jp-StatusBar-Left"), "status-bar.png", tmp_path
    )
    (lab.folder / "end").touch()
    wait_until(page, lambda: not busy_prompt(page, 1), "the end of the cell")

    run_notebook(page, lab, "second.ipynb", LOAD, TAKE, workspace="cards")
    wait_for_text(page, TOAST, "HPU 0 is busy: first.ipynb holds it.")
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
    assert [session["path"] for session in lab.sessions()] == ["second.ipynb"]

    run_all(page)
    wait_for_output(page, 1, "took a card")
    wait_for_text(page, ".hpu-Card .hpu-Holder-name", "second.ipynb")


def test_user_chooses_a_holder_and_other_windows_are_updated(
    own_page, new_page, start_lab, tmp_path
):
    lab = start_lab(NOTIFYING, HPU_MAGIC_CARDS="2")
    for name in ("first.ipynb", "second.ipynb"):
        HoldingNotebook(lab, name, f"{LOAD}\n{TAKE}").client.stop_channels()
    age_session(own_page, lab.folder / "first.ipynb", 7300)
    run_notebook(own_page, lab, "third.ipynb", LOAD, TAKE)
    sentence = "No card is free: first.ipynb and second.ipynb hold them, the first idle for 2 h."
    wait_for_text(own_page, TOAST, sentence)

    # A headline for the machine, and the suggested holder above the cards.
    own_page.locator(OPEN_SIDEBAR).click()
    wait_for_text(own_page, ".hpu-Offer-title", "No card is free. HPU 0 has been idle the longest:")
    offer = own_page.locator(".hpu-Offer .hpu-Holder").inner_text().split("\n")
    assert offer[0] == "first.ipynb"
    assert offer[1].startswith("idle for 2 h · process ")
    headline = own_page.locator(".hpu-Cards-headline").inner_text().split()
    assert headline == ["2", "Gaudi2", "cards", "simulated", "2", "in", "use"]
    assert own_page.locator(".hpu-Cards-list").inner_text().count("simulated") == 0
    assert own_page.locator(".hpu-mod-front").count() == 0
    for theme in ("Light", "Dark"):
        choose_theme(own_page, f"JupyterLab {theme}")
        assert faint_texts(own_page, ".hpu-Cards") == []
        keep_screenshot(own_page, own_page.locator(".hpu-Cards"), f"offer-{theme}.png", tmp_path)
    choose_theme(own_page, "JupyterLab Light")

    own_page.locator(TOAST).get_by_role("button", name="Shut down kernel…").click()
    choices = own_page.locator(DIALOG).get_by_role("combobox")
    assert choices.locator("option").all_inner_texts() == [
        "HPU 0: first.ipynb, idle for 2 h",
        "HPU 1: second.ipynb",
    ]
    choices.select_option("HPU 1: second.ipynb")
    press(own_page, "Ok")
    assert "The kernel of second.ipynb holds HPU 1" in own_page.locator(DIALOG).inner_text()
    press(own_page, "Shut Down")
    wait_for_text(own_page, TOAST, "HPU 1 is free. Run the cell again.")
    run_all(own_page)
    wait_for_output(own_page, 1, "took a card")
    front = own_page.locator(".hpu-Card.hpu-mod-front")
    wait_until(own_page, lambda: front.count() == 1, "the mark of the notebook in front")
    assert front.locator(".hpu-Card-number").inner_text() == "HPU 1"
    assert front.get_attribute("aria-current") == "true"
    name = front.locator(".hpu-Holder-name")
    assert name.evaluate("name => getComputedStyle(name).fontWeight") == "600"
    own_page.locator(OPEN_SIDEBAR).click()

    # The notebook is not saved, so the other window cannot read the mode from the file.
    other = new_page()
    other.goto(lab.address("third.ipynb", "other"))
    wait_for_text(other, STATUS, "HPU 1 · eager · 3.00 / 96 GiB")
    own_page.locator(SWITCH).select_option("lazy")
    restart(own_page)
    run_all(own_page)
    wait_for_text(own_page, STATUS, "HPU 1 · lazy")
    wait_for_text(other, STATUS, "HPU 1 · lazy")
    other.close()
