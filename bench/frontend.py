"""Bundle size of the JupyterLab extension, and time to draw its sidebar in a browser."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import Figure, running

BUILT = Path("hpu_magic/labextension/static")
CARDS = 8
SAMPLES = 600  # samples in the history: ten minutes at the default interval
FRAMES = 60
GROUPS = 6
INTERVAL = 0.5  # seconds
HOLDER = """
import struct, sys
from hpu_magic.simulator import cards
from hpu_magic.simulator.cards import page
card = cards.acquire()
struct.pack_into("<q", card.page, page.COUNTERS_OFFSET, (card.module_id + 1) << 30)
print("held", flush=True)
sys.stdin.read()
"""

# This code makes the browser compute styles and layout at the end of each frame, as it does before
# painting. It then forces a layout of the full page, as after a resize, so that both are measured
# under the same conditions.
OBSERVE = """() => {
  window.hpuFrames = [];
  const measure = performance.measure.bind(performance);
  const layOut = () => document.body.getBoundingClientRect();
  performance.measure = (name, options) => {
    const measured = measure(name, options);
    if (name === "hpu_magic:draw") {
      layOut();
      const drawn = performance.now();
      document.body.style.display = "none";
      layOut();
      document.body.style.display = "";
      layOut();
      hpuFrames.push([drawn - options.start, performance.now() - drawn]);
    }
    return measured;
  };
}"""


def figures() -> Iterator[Figure]:
    size = sum(file.stat().st_size for file in BUILT.rglob("*") if file.suffix != ".map")
    yield Figure("JupyterLab extension: bundle", size / 1024, "KiB", 220)
    from tests.browser.conftest import CHROMIUM_FLAGS, CHROMIUM_NAMES

    chromium = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if chromium is None:
        print("no browser found; skipping the time of a sidebar frame", flush=True)
        return
    ratio = frame_ratio(chromium, CHROMIUM_FLAGS)
    yield Figure(f"sidebar: a frame of {CARDS} cards / layout of the page", ratio, "ratio", 0.25)


def frame_ratio(chromium: str, flags: tuple[str, ...]) -> float:
    """Return the time to draw a sidebar frame, relative to the time to lay out the full page."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import run_lab

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        environment = {"HPU_MAGIC_CARDS": str(CARDS), "HPU_MAGIC_CARDS_DIR": f"{folder}/.cards"}
        write_settings(Path(folder))
        previous = os.environ.copy()
        os.environ.update(environment)
        try:
            lab = stack.enter_context(run_lab(Path(folder)))
            for _ in range(CARDS):
                stack.enter_context(running(HOLDER))
        finally:
            os.environ.clear()
            os.environ.update(previous)
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=chromium, args=list(flags))
        stack.callback(browser.close)
        page = browser.new_page()
        page.route_web_socket(lambda url: "hpu_magic/stream" in url, with_history)
        page.goto(f"{lab.url}/lab?token={lab.token}")
        return draw(page)


def draw(page: Any) -> float:
    """Open the sidebar, and return the time of its frames relative to a layout of the page."""
    tab = page.locator('li.lm-TabBar-tab[data-id="hpu_magic-sidebar"]')
    tab.wait_for(timeout=60_000)
    tab.click()
    page.wait_for_function(f"() => document.querySelectorAll('.hpu-Holder').length === {CARDS}")
    page.evaluate(OBSERVE)
    page.wait_for_function(f"() => hpuFrames.length >= {FRAMES}", timeout=120_000)
    frames = page.evaluate("() => hpuFrames")
    # Frames draw different content, so each group averages over several frames.
    groups = [frames[start::GROUPS] for start in range(GROUPS)]
    return statistics.median(
        sum(drawn for drawn, _ in group) / sum(page for _, page in group) for group in groups
    )


def with_history(socket: Any) -> None:
    """Forward the WebSocket stream, but send a full history first."""
    server = socket.connect_to_server()

    def receive(message: str) -> None:
        content = json.loads(message)
        if content["type"] == "snapshot" and not sent:
            sent.append(True)
            socket.send(json.dumps(full_history(content["time"])))
        if content["type"] != "history":
            socket.send(message)

    sent: list[bool] = []
    server.on_message(receive)


def full_history(now: float) -> dict[str, Any]:
    """Return ten minutes of sinusoidal values that end at `now`."""
    time = [now - (SAMPLES - row) * 600 / SAMPLES for row in range(SAMPLES)]
    cards = {
        str(index): {
            "memory_used": [(2 + math.sin(row / 9 + index)) * 2**34 for row in range(SAMPLES)]
        }
        for index in range(CARDS)
    }
    return {"type": "history", "time": time, "cards": cards}


def write_settings(folder: Path) -> None:
    settings = folder / ".settings" / "hpu_magic" / "plugin.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"interval": INTERVAL}))
