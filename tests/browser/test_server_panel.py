"""Test the live panel of ``%hpu_serve`` and its card's holder, with a replacement for vLLM."""

import pytest
import vllm_program
from lab_page import (
    OPEN_SIDEBAR,
    busy_prompt,
    choose_theme,
    faint_texts,
    keep_screenshot,
    output,
    run_notebook,
    wait_for_output,
    wait_for_text,
)

pytestmark = pytest.mark.browser


@pytest.fixture
def page(own_page):
    return own_page


GENERATE = """
import time, urllib.request
for _ in range(20):
    urllib.request.urlopen(report.url.replace("/v1", "/generate")).close()
    time.sleep(0.2)
print("generated")
"""
# The panel must also be updated while this cell runs.
STOP = """
import os
while not os.path.exists("stop"):
    time.sleep(0.1)
urllib.request.urlopen(report.url.replace("/v1", "/generate")).close()
while os.path.exists("stop"):
    time.sleep(0.1)
%hpu_serve off
"""


def test_panel_shows_requests_until_the_server_stops(page, start_lab, tmp_path):
    vllm_program.install(tmp_path / "site")
    lab = start_lab(PYTHONPATH=str(tmp_path / "site"), HPU_MAGIC_CARDS="1")
    serve = "%load_ext hpu_magic\n%hpu_serve tiny --port 0 -o report"
    run_notebook(page, lab, "serve.ipynb", serve, GENERATE, STOP)
    wait_for_output(page, 0, "tiny is ready at http://127.0.0.1:")
    wait_for_output(page, 1, "generated")
    wait_for_output(page, 0, "3 running, 4 waiting, 20 finished")
    page.locator(OPEN_SIDEBAR).click()
    wait_for_text(page, ".hpu-Card .hpu-Holder-name", "vLLM in serve.ipynb")
    assert "idle" not in page.locator(".hpu-Card").inner_text()

    panel = page.locator(".jp-CodeCell").nth(0).locator(".jp-OutputArea")
    for width in (1280, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        for theme in ("Light", "Dark"):
            choose_theme(page, f"JupyterLab {theme}")
            assert faint_texts(page, ".jp-CodeCell .jp-OutputArea") == []
            keep_screenshot(page, panel, f"serve-{theme}-{width}.png", tmp_path)
            keep_screenshot(
                page, page.locator(".hpu-Card").nth(0), f"serve-card-{theme}-{width}.png", tmp_path
            )

    (lab.folder / "stop").touch()
    wait_for_output(page, 0, "21 finished")
    assert busy_prompt(page, 2)
    (lab.folder / "stop").unlink()
    wait_for_output(page, 0, "The server was stopped.")
    assert "21 finished" in output(page, 0)
    wait_for_text(page, ".hpu-Card-state", "free")
