"""Test fits whose page is reloaded, closed or reopened, in a real JupyterLab."""

import json
import subprocess
import sys

import pytest
from lab_page import (
    keep_screenshot,
    open_notebook,
    run_all,
    show_notebook,
    shown_notebook,
    wait_until,
)
from small_fit import TRAINER

pytestmark = pytest.mark.browser


@pytest.fixture
def page(own_page):
    return own_page


# The last epoch of the fit waits for the file "closed".
FIT = f"""%load_ext hpu_magic
import logging, os, warnings
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore"){TRAINER}
class Model(Layer):
    def training_step(self, batch, index):
        time.sleep(0.02)
        while self.current_epoch == {{epochs}} - 1 and not os.path.exists("closed"):
            time.sleep(0.1)
        return super().training_step(batch, index)
data, trainer, model = loader(640), make_trainer(max_epochs={{epochs}}), Model()
%hpu_fit -o result trainer model data
"""
STOP = ".jp-OutputArea .jupyter-button:has-text('Stop')"
WIDGET = "application/vnd.jupyter.widget-view+json"
# The number of drawn points.
POINTS = """() => {
  const sources = [...Bokeh.index.roots].flatMap(view => [...view.model.references()])
  const lines = sources.find(one => one.data && "in_use" in one.data)
  return lines ? lines.data.time.length : 0
}"""


def saved(lab, name):
    """Return the rich outputs of the first cell of a saved notebook."""
    try:
        outputs = json.loads((lab.folder / name).read_text())["cells"][0]["outputs"]
    except json.JSONDecodeError:  # the file is being written
        return []
    return [output for output in outputs if "data" in output]


def save(page, lab, name, holds):
    shown_notebook(page).locator(".jp-InputPrompt").first.click()
    page.keyboard.press("Control+s")
    wait_until(page, lambda: holds(saved(lab, name)), "the saved file")


def draws(page):
    """Wait for a growing curve."""
    page.locator(STOP).wait_for()
    wait_until(page, lambda: page.evaluate("!!window.Bokeh?.index?.roots"), "BokehJS")
    wait_until(page, lambda: page.evaluate(POINTS) > 5, "a curve")
    seen = page.evaluate(POINTS)
    wait_until(page, lambda: page.evaluate(POINTS) > seen + 3, "a longer curve")


def shows_result(page, title):
    """Wait until the table and the picture have replaced the widget."""
    found = page.get_by_text(title)
    found.first.wait_for()
    live = shown_notebook(page).locator(".jp-OutputArea .jupyter-widgets")
    wait_until(page, lambda: live.count() == 0, "the final result")
    shown_notebook(page).locator(".jp-RenderedSVG").wait_for()
    assert found.count() == 1


def is_result(outputs, title):
    kinds = [sorted(output["data"]) for output in outputs]
    return kinds == [["text/html", "text/plain"], ["image/svg+xml", "text/plain"]] and title in str(
        outputs[0]["data"]["text/html"]
    )


def test_fit_continues_after_a_reload_of_its_page(page, new_page, lab, tmp_path):
    name = "survives.ipynb"
    open_notebook(page, lab, name, FIT.replace("{epochs}", "400"))
    run_all(page)
    draws(page)
    pictures = page.locator(".jp-OutputArea-output .jp-RenderedSVG, .jp-RenderedSVG")
    assert not any(picture.is_visible() for picture in pictures.all()), (
        "the panel hides the picture"
    )
    save(page, lab, name, lambda outputs: "image/svg+xml" in str(outputs))
    panel, _ = saved(lab, name)
    assert sorted(panel["data"]) == [WIDGET, "text/html", "text/plain"]
    assert "VBox" not in str(panel)
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(lab.folder / name)]
    subprocess.run([*command, "--output-dir", tmp_path], check=True, capture_output=True)
    exported = (tmp_path / "survives.html").read_text()
    assert "Model is being trained" in exported
    assert "data:image/svg+xml;base64," in exported
    assert "VBox(" not in exported

    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    draws(page)
    page.wait_for_timeout(4_000)  # time for a few requests to the kernel
    page.locator("#jp-main-statusbar").get_by_text("| Busy").wait_for()
    keep_screenshot(page, shown_notebook(page), "reloaded.png", tmp_path)

    other = new_page()
    other.goto(lab.address(name, "other"))
    other.wait_for_selector(".jp-Notebook .jp-Cell")
    draws(other)
    other.locator(STOP).click()
    for each in (other, page):
        shows_result(each, "Fit stopped on HPU ")
    keep_screenshot(page, shown_notebook(page), "result-after-reload.png", tmp_path)
    other.context.close()
    page.bring_to_front()
    save(page, lab, name, lambda outputs: is_result(outputs, "Fit stopped on HPU "))


def test_page_that_opens_while_the_kernel_cannot_reply_shows_the_panel(page, new_page, lab):
    name = "stuck.ipynb"
    # The step holds the interpreter's lock for longer than a page waits for the states of widgets.
    stick = """if os.path.exists("stick"):
            os.unlink("stick")
            import ctypes
            ctypes.PyDLL(None).usleep(15_000_000)
        time.sleep(0.02)"""
    fit = FIT.replace("time.sleep(0.02)", stick).replace("{epochs}", "4000")
    open_notebook(page, lab, name, fit)
    run_all(page)
    draws(page)
    save(page, lab, name, lambda outputs: len(outputs) == 2 and WIDGET in outputs[0]["data"])
    stuck = lab.folder / "stick"
    stuck.touch()
    wait_until(page, lambda: not stuck.exists(), "the slow step")
    other = new_page()
    other.goto(lab.address(name, "stuck-other"))
    draws(other)
    other.locator(STOP).click()
    for each in (other, page):
        shows_result(each, "Fit stopped on HPU ")


def test_result_of_a_fit_without_a_page_is_shown_by_the_next_page(page, new_page, lab):
    name = "unwatched.ipynb"
    first = new_page()
    open_notebook(first, lab, name, FIT.replace("{epochs}", "12"))
    run_all(first)
    draws(first)
    save(first, lab, name, lambda outputs: len(outputs) == 2 and WIDGET in outputs[0]["data"])
    first.close()
    (lab.folder / "closed").touch()
    wait_until(page, lambda: "idle" in lab.kernel_states(name), "the end of the fit")
    show_notebook(page, lab, name)
    shows_result(page, "Fit finished on HPU ")
    assert page.get_by_text("Error displaying widget").count() == 0
    save(page, lab, name, lambda outputs: is_result(outputs, "Fit finished on HPU "))
    assert (lab.folder / name).stat().st_size < 100_000


def test_text_and_picture_of_a_fit_remain_after_the_kernel_has_ended(page, lab):
    name = "ended.ipynb"
    open_notebook(page, lab, name, FIT.replace("{epochs}", "400"))
    run_all(page)
    draws(page)
    save(page, lab, name, lambda outputs: "image/svg+xml" in str(outputs))
    page.goto("about:blank")
    [kernel] = [session["kernel"]["id"] for session in lab.sessions() if session["path"] == name]
    lab.end_kernel(kernel)
    page.goto(lab.address(name))
    page.get_by_text("Model is being trained.").wait_for()
    wait_until(page, lambda: shown_notebook(page).locator(".jp-RenderedSVG").count() == 1, "it")
    assert page.get_by_text("widget...").count() == 0
    assert page.get_by_text("Error displaying widget").count() == 0
    save(
        page,
        lab,
        name,
        lambda outputs: [*map(len, (output["data"] for output in outputs))] == [2, 2],
    )
