"""Test the tab of a card in a real JupyterLab and a real Chromium."""

import re
from typing import Any

import pytest
from lab_page import OPEN_SIDEBAR, open_sidebar, wait_until
from started_process import started_python

pytestmark = pytest.mark.browser

# A process name that looks like HTML.
NAME = "<img src=x onerror=alert(1)>.py"
HOLDER = """
import itertools, struct, sys, threading, time
from hpu_magic.simulator import cards
from hpu_magic.simulator.cards import page
card = cards.acquire()
def fill():
    for step in itertools.count(4):
        struct.pack_into("<q", card.page, page.COUNTERS_OFFSET, step << 28)
        time.sleep(0.25)
threading.Thread(target=fill, daemon=True).start()
print("held", flush=True)
sys.stdin.read()
"""
CHART = ".hpu-Chart-plot"


@pytest.fixture(scope="module")
def holder(lab):
    """A process that holds the first card and allocates more and more memory."""
    for session in lab.sessions():  # a notebook from another test may hold the first card
        lab.end_kernel(session["kernel"]["id"])
    (lab.folder / NAME).write_text(HOLDER)
    with started_python(NAME, cwd=lab.folder, env=lab.environment):
        yield


def open_cards(page, lab):
    open_sidebar(page, lab)
    page.locator(".hpu-Card").first.wait_for()


def chart_label(page):
    """Return the accessible label of the memory chart."""
    return str(page.locator(CHART).first.get_attribute("aria-label"))


def drag_across_chart(page):
    box = page.locator(f"{CHART} .u-over").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.7 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], middle, steps=4)
    page.mouse.up()


def test_stream_is_open_only_while_cards_are_visible(page, lab):
    """This test is the first one because streams are closed a moment later than views."""
    streams: list[Any] = []

    def note(socket):
        if "hpu_magic/stream" in socket.url:
            streams.append(socket)

    page.on("websocket", note)
    open_cards(page, lab)
    assert len(streams) == 1
    page.locator(".hpu-Card-title").first.click()
    page.locator(".hpu-CardCharts-heading").wait_for()
    page.locator(OPEN_SIDEBAR).click()
    page.wait_for_timeout(3_000)
    assert not streams[0].is_closed()  # the tab still shows a card
    page.locator(".lm-TabBar-tab", has_text="HPU 0").locator(".lm-TabBar-tabCloseIcon").click()
    wait_until(page, streams[0].is_closed, "the end of the stream")
    page.locator(OPEN_SIDEBAR).click()
    wait_until(page, lambda: len(streams) == 2, "the next stream")


@pytest.mark.usefixtures("holder")
def test_card_tab_pauses_zooms_and_survives_a_reload(page, lab):
    open_cards(page, lab)
    page.locator(".hpu-Card-title").first.focus()
    page.keyboard.press("Enter")
    page.locator(f"{CHART} canvas").first.wait_for()
    # The page may have shown the card before the process held it.
    pattern = re.compile(r"Memory: latest .* GiB, visible maximum .* GiB")
    wait_until(page, lambda: bool(pattern.match(chart_label(page))), "the memory of the process")
    [title] = page.locator(".hpu-Chart-title").all_inner_texts()  # the only simulated value
    assert re.fullmatch(r"Memory: up to [\d.]+ GiB, [\d.]+ % of 96 GiB", title)
    first = chart_label(page)
    wait_until(page, lambda: chart_label(page) != first, "a new sample")

    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(300)
    stopped = chart_label(page)
    page.wait_for_timeout(2_500)
    assert chart_label(page) == stopped
    page.get_by_role("button", name="Pause").click()
    wait_until(page, lambda: chart_label(page) != stopped, "the end of the pause")

    reset = page.get_by_role("button", name="Reset zoom")
    assert reset.is_disabled()
    drag_across_chart(page)
    wait_until(page, reset.is_enabled, "the zoom")
    reset.click()
    wait_until(page, reset.is_disabled, "the end of the zoom")
    page.locator(".hpu-CardCharts").focus()
    page.keyboard.press("+")
    wait_until(page, reset.is_enabled, "the zoom by keyboard")
    page.keyboard.press("Escape")
    wait_until(page, reset.is_disabled, "the end of the zoom by keyboard")

    # JupyterLab saves its layout a moment after a change.
    page.wait_for_timeout(2_000)
    page.reload()
    page.locator(f"{CHART} canvas").first.wait_for()
    assert " GiB, visible" in chart_label(page)


@pytest.mark.usefixtures("holder")
def test_process_names_are_shown_as_text(page, lab):
    open_cards(page, lab)
    assert NAME in page.locator(".hpu-Holder-name").first.inner_text()
    assert page.locator(".hpu-Cards img").count() == 0
    detail = page.locator(".hpu-Holder").first
    assert detail.get_by_role("button").count() == 0  # other processes cannot be shut down
