"""Test fits in the sidebar, after a reload and in another browser."""

import pytest
from conftest import NOTIFYING
from lab_page import (
    OPEN_SIDEBAR,
    STATUS,
    choose_theme,
    faint_texts,
    keep_screenshot,
    open_notebook,
    run_all,
    run_notebook,
    wait_for_output,
    wait_for_text,
    wait_until,
)
from small_fit import TRAINER

pytestmark = pytest.mark.browser

SETUP = f"""%load_ext hpu_magic{TRAINER}
import os
class DigitReader(Layer):
    def training_step(self, batch, index):
        time.sleep(0.02)
        if os.path.exists("failure"):
            raise ValueError("the data is broken")
        return super().training_step(batch, index) * factor
data, factor = loader(16 * 25_000), 1.0  # each fit runs until it is stopped or fails
"""
FIT = """
coach = make_trainer(max_epochs=2)
model = DigitReader()
result = %hpu_fit coach model data
"""
AFTER = "print('after the fit:', result.outcome)"
STOP = "Stop the fit of {}"
SHOWN = ".hpu-Fit:not([hidden])"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    with forking_lab(tmp_path_factory.mktemp("fits"), NOTIFYING, HPU_MAGIC_CARDS="2") as running:
        yield running


def show_sidebar(page):
    page.locator(OPEN_SIDEBAR).wait_for()
    if not page.locator(".hpu-Cards").is_visible():
        page.locator(OPEN_SIDEBAR).click()


def wait_for_fit(page, view=".hpu-Cards"):
    """Wait until a view shows all values of a running fit."""
    wait_for_text(page, f"{view} {SHOWN} .hpu-Fit-left", "left")
    assert page.locator(f"{view} {SHOWN} .hpu-Fit-place").inner_text() == "epoch 1 of 2"
    wait_for_text(page, f"{view} {SHOWN} .hpu-Fit-rate", "steps/s")
    wait_for_text(page, f"{view} {SHOWN} .hpu-Fit-loss", "loss ")


def wait_for_no_fit(page):
    fits = page.locator(".hpu-Fit:visible")
    wait_until(page, lambda: fits.count() == 0, "the end of the fit")


def stop(page, name):
    page.locator(".hpu-Cards").get_by_role("button", name=STOP.format(name)).click()


def test_sidebar_shows_and_stops_a_fit_after_a_reload(page, lab, tmp_path):
    open_notebook(page, lab, "first.ipynb", SETUP, FIT, AFTER)
    show_sidebar(page)
    run_all(page)
    wait_for_fit(page)
    bar = page.locator(".hpu-Cards").get_by_role("progressbar", name="Fit of first.ipynb")
    assert bar.get_attribute("aria-valuetext").startswith("DigitReader: epoch 1 of 2, ")
    wait_for_text(page, STATUS, "HPU 0 · eager · ")
    wait_for_text(page, STATUS, " left")
    assert "\nFit of DigitReader: epoch 1 of 2, " in page.locator(STATUS).get_attribute("title")
    status_bar = page.locator("#jp-main-statusbar .jp-StatusBar-Left")
    keep_screenshot(page, status_bar, "fit-status-bar.png", tmp_path)
    page.locator(".hpu-Card-title").first.click()
    wait_for_fit(page, ".hpu-CardCharts")
    for theme in ("Dark", "Light"):
        choose_theme(page, f"JupyterLab {theme}")
        assert faint_texts(page, ".hpu-Fit:visible") == []
        keep_screenshot(page, page.locator(".hpu-Cards"), f"fit-{theme}.png", tmp_path)
        keep_screenshot(page, page.locator(".hpu-CardCharts"), f"fit-card-{theme}.png", tmp_path)

    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-Cell", state="attached")
    show_sidebar(page)
    wait_for_fit(page)
    page.get_by_role("tab", name="first.ipynb").click()
    wait_for_text(page, STATUS, " left")
    stop(page, "first.ipynb")
    wait_for_text(page, f"{SHOWN} .hpu-Fit-phase", "Stopping")
    wait_for_no_fit(page)
    wait_until(page, lambda: lab.kernel_states("first.ipynb") == ["idle"], "the cell's end")
    wait_until(page, lambda: "left" not in page.locator(STATUS).inner_text(), "the status bar")


def test_another_browser_shows_and_stops_fits(page, new_page, lab, tmp_path):
    breaks = FIT.replace("model =", "factor = float('nan')\nmodel =")
    # The next fit fails, in a kernel without a handler for stop requests.
    unstoppable = "del get_ipython().kernel.control_handlers['hpu_magic_stop_request']"
    pause = "while not os.path.exists('next'):\n    time.sleep(0.1)"
    between = f"{AFTER}\n{pause}\nfactor = 1.0\n{unstoppable}"
    run_notebook(page, lab, "second.ipynb", SETUP, breaks, between, FIT)
    other = new_page(900, 700)
    other.goto(f"{lab.url}/lab/workspaces/elsewhere?token={lab.token}")
    show_sidebar(other)
    wait_for_fit(other)
    wait_for_text(other, f"{SHOWN} .hpu-Fit-broken", "loss NaN since step 1")
    assert other.locator(f"{SHOWN} .hpu-Fit-loss").inner_text() == "loss NaN"
    assert faint_texts(other, SHOWN) == []
    check_at_widths(other, tmp_path)
    stop(other, "second.ipynb")
    wait_for_text(other, f"{SHOWN} .hpu-Fit-phase", "Stopping")
    wait_for_no_fit(other)
    wait_for_output(page, 2, "after the fit: stopped")
    (lab.folder / "next").touch()

    wait_for_fit(other)
    stop(other, "second.ipynb")
    why = "The fit of second.ipynb could not be stopped. The kernel received the request"
    wait_for_text(other, ".Toastify__toast", why)
    button = other.locator(".hpu-Cards").get_by_role("button", name=STOP.format("second.ipynb"))
    assert button.get_attribute("aria-disabled") == "false"
    assert other.locator(f"{SHOWN} .hpu-Fit-phase").inner_text() == ""
    (lab.folder / "failure").touch()
    wait_for_output(page, 3, "the data is broken")
    wait_for_no_fit(other)


def check_at_widths(page, tmp_path):
    """Check that a narrow sidebar neither cuts off texts nor moves them."""
    parts = page.locator(f"{SHOWN} .hpu-Fit-figures > span, {SHOWN} .hpu-Fit-head > *")
    cards = page.locator(".hpu-Cards")
    for width in (250, 200):
        page.evaluate(
            "width => { const cards = document.querySelector('.hpu-Cards');"
            "cards.style.minWidth = '0'; cards.style.width = `${width}px`; }",
            width,
        )
        page.wait_for_timeout(300)
        keep_screenshot(page, cards, f"fit-{width}.png", tmp_path)
        assert cards.evaluate("node => node.scrollWidth <= node.clientWidth")
        cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
        assert parts.evaluate_all(cut) == 0, width
    # A holder that appears above the fit moves all of its parts.
    # Not offsetTop, which is rounded.
    places = "all => all.map(one => one.getBoundingClientRect().top).map((y, _, all) => y - all[0])"
    before = parts.evaluate_all(places)
    page.wait_for_timeout(2_500)
    assert parts.evaluate_all(places) == pytest.approx(before, abs=0.1)
