"""Test the overview of all cards over time, in a real JupyterLab and a real Chromium."""

import json
import re
import time
from pathlib import Path

import pytest
from holding_notebook import HoldingNotebook
from lab_page import (
    OPEN_SIDEBAR,
    choose_theme,
    faint_texts,
    open_sidebar,
    screenshots,
    wait_until,
)
from started_process import wait_for

pytestmark = pytest.mark.browser

BARS = ".hpu-Past-bar"
ROWS = ".hpu-Past-row"


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    """A server that samples every two seconds, with a former and a current holder."""
    folder: Path = tmp_path_factory.mktemp("overview")
    (folder / ".config").mkdir()
    config = {"HpuMagicServer": {"history_interval": 2}}
    (folder / ".config" / "jupyter_server_config.json").write_text(json.dumps(config))
    with forking_lab(folder, HPU_MAGIC_CARDS="8") as running:
        first = HoldingNotebook(running, "first.ipynb")
        wait_for(first.is_in_history)
        first.close()
        time.sleep(3)
        second = HoldingNotebook(running, "second.ipynb")
        wait_for(second.is_in_history)
        yield running
        second.close()


@pytest.fixture
def page(page, lab):
    """A page with the overview of the last ten minutes."""
    open_sidebar(page, lab)
    page.get_by_role("button", name="Open the overview of all cards").click()
    page.locator(BARS).first.wait_for()
    page.get_by_role("button", name="10 min").click()
    return page


def labels(page, selector):
    return [str(each.get_attribute("aria-label")) for each in page.locator(selector).all()]


def point_at(page, bar):
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] - 10)


def test_overview_shows_holders_before_the_first_client(page):
    assert page.locator(ROWS).count() == 8
    clock = r"\d+:\d\d:\d\d.*"
    bars = labels(page, BARS)
    assert len(bars) == 2, bars
    first, second = bars
    assert re.fullmatch(rf"Holder 1: first\.ipynb, {clock} to {clock}", first)
    assert re.fullmatch(rf"Holder 2: second\.ipynb, since {clock}", second)
    assert [each.inner_text() for each in page.locator(BARS).all()] == [
        "1: first.ipynb",
        "2: second.ipynb",
    ]
    legend = page.locator(".hpu-Past-legend").inner_text().split("\n")
    assert legend == ["Holders, numbered as on the bars:", "1: first.ipynb", "2: second.ipynb"]
    plots = labels(page, ".hpu-Past-plot")
    assert plots[:2] == [
        "Memory of HPU 0, visible maximum 5.00 GiB; held by first.ipynb, second.ipynb",
        "Memory of HPU 1, visible maximum 0 B",
    ]

    row = page.locator(ROWS).first
    assert row.locator(".hpu-Past-holder").inner_text() == "second.ipynb"
    point_at(page, page.locator(BARS).first)
    holder = row.locator(".hpu-Past-holder")
    wait_until(page, lambda: holder.inner_text() == "first.ipynb", "the former holder")
    assert row.locator(".hpu-Past-value").inner_text() == "5.00 / 96 GiB"
    at = page.locator(".hpu-Past-at")
    assert re.fullmatch(clock, at.inner_text())
    page.mouse.move(5, 5)
    wait_until(page, lambda: holder.inner_text() == "second.ipynb", "the current holder")
    assert at.is_hidden()


def test_overview_zooms_moves_and_survives_a_reload(page):
    reset = page.get_by_role("button", name="Reset zoom")
    times = lambda: page.locator(".hpu-TimeAxis-time").all_inner_texts()  # noqa: E731
    assert reset.is_disabled()
    whole = times()
    box = page.locator(".hpu-Past-plot").first.bounding_box()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.99 * box["width"], box["y"] + 10, steps=4)
    page.mouse.up()
    wait_until(page, reset.is_enabled, "the zoom")
    wait_until(page, lambda: times() != whole, "other times on the axis")
    zoomed = times()
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Shift")
    wait_until(page, lambda: times() != zoomed, "the move")
    page.locator(".hpu-Past").focus()
    page.keyboard.press("Escape")
    wait_until(page, reset.is_disabled, "the end of the zoom")
    page.keyboard.press("+")
    wait_until(page, reset.is_enabled, "the zoom by keyboard")

    page.get_by_role("button", name="24 h").click()
    wait_until(page, reset.is_disabled, "the end of the zoom")
    # JupyterLab saves its layout a moment after a change.
    page.wait_for_timeout(2_000)
    page.reload()
    page.locator(BARS).first.wait_for()
    assert page.get_by_role("button", name="24 h").get_attribute("aria-pressed") == "true"


def test_overview_can_be_read_with_the_keyboard(page):
    titles = page.locator(".hpu-Past-title")
    titles.first.focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    spoken = page.locator(".hpu-Past-spoken")
    for _ in range(100):
        page.keyboard.press("ArrowLeft")
        if "first.ipynb" in spoken.inner_text():
            break
    assert re.search(r": HPU 0, 5\.00 / 96 GiB, first\.ipynb$", spoken.inner_text())
    page.keyboard.press("ArrowDown")
    assert titles.nth(1).evaluate("node => node === document.activeElement")
    page.keyboard.press("Enter")
    page.locator(".hpu-CardCharts-number", has_text="HPU 1").wait_for()


def test_overview_is_legible_in_both_themes_and_in_a_narrow_window(page, tmp_path):
    for theme in ("Light", "Dark"):
        choose_theme(page, f"JupyterLab {theme}")
        page.wait_for_timeout(500)
        assert faint_texts(page, ".hpu-Past") == []
        page.screenshot(path=screenshots(tmp_path) / f"overview-{theme.lower()}.png")
    page.locator(OPEN_SIDEBAR).click()
    page.set_viewport_size({"width": 500, "height": 900})
    page.wait_for_timeout(1_000)
    view = page.locator(".hpu-Past")
    assert view.evaluate("node => node.scrollWidth <= node.clientWidth")
    assert faint_texts(page, ".hpu-Past") == []
    widths = view.evaluate(
        "node => [...node.querySelectorAll('.hpu-Past-plot')].map(one => one.clientWidth)"
    )
    assert len(widths) == 8
    assert min(widths) > 300
    page.screenshot(path=screenshots(tmp_path) / "overview-narrow.png")
