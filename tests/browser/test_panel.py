"""The live panel in a real JupyterLab, looked at and clicked in a real Chromium."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from lab_page import (
    busy_prompt,
    choose_theme,
    faint_texts,
    keep_screenshot,
    open_notebook,
    run_all,
    wait_until,
)

from hpu_magic.panels import palette

pytestmark = pytest.mark.browser

SETUP = """
%load_ext hpu_magic
import logging, warnings
import lightning.pytorch as pl, torch
from torch import nn
from sklearn.datasets import load_digits
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
torch.set_num_threads(1)

class DigitReader(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 10))
    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])
    def validation_step(self, batch, index):
        self.log("val_loss", nn.functional.cross_entropy(self.network(batch[0]), batch[1]))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-4)

digits = load_digits()
pixels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
dataset = torch.utils.data.TensorDataset(pixels, torch.tensor(digits.target))
train, val = torch.utils.data.random_split(dataset, [1437, 360])
loaders = torch.utils.data.DataLoader(train, 32), torch.utils.data.DataLoader(val, 360)
"""
FIT = """%%hpu_fit -o result
trainer = pl.Trainer(accelerator="hpu", devices=1, precision="bf16-mixed", max_epochs=400,
                     logger=False, enable_checkpointing=False, enable_model_summary=False)
trainer.fit(DigitReader(), *loaders)"""
AFTER = "print('outcome:', result.outcome)"

POINTS = """() => {
  const sources = Object.values(Bokeh.index.roots ?? Bokeh.index)
    .flatMap(view => [...view.model.references()])
  const lines = sources.find(one => one.data && "train" in one.data)
  return lines ? lines.data.time.length : 0
}"""


TEXT_COLOURS = """() => {
  const found = []
  const visit = view => {
    for (const visual of view.visuals ?? []) {
      if (visual.type === "text" && visual.get_text_color && view.el) {
        found.push(visual.get_text_color())
      }
    }
    const inner = [view.child_views ?? [], view.renderer_views?.values() ?? [],
                   view.computed_renderer_views ?? [], view.title_view ? [view.title_view] : []]
    inner.forEach(views => [...views].forEach(visit))
  }
  ;[...(Bokeh.index.roots ?? Object.values(Bokeh.index))].forEach(visit)
  const theme = getComputedStyle(document.body).getPropertyValue("--jp-ui-font-color1").trim()
  return [[...new Set(found)], theme]
}"""


def shows_text(output: Any) -> bool:
    """Whether there is an output, and what it says has been drawn."""
    return output.count() > 0 and output.first.inner_text().strip() != ""


def test_curve_moves_and_stop_works_while_the_cell_is_busy(
    page: Any, lab: Any, tmp_path: Path
) -> None:
    open_notebook(page, lab, "fit.ipynb", SETUP, FIT, AFTER)
    run_all(page)
    stop = page.get_by_role("button", name="Stop")
    stop.wait_for(timeout=240_000)
    wait_until(page, lambda: page.evaluate(POINTS) > 10, 60, "a curve of ten points")

    seen, busy = page.evaluate(POINTS), busy_prompt(page, 1)
    wait_until(page, lambda: page.evaluate(POINTS) > seen + 5, 20, "a longer curve")
    assert busy
    assert busy_prompt(page, 1), "the curve has to move while the cell is busy"

    panel = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
    header = panel.last.inner_text()
    assert "Training DigitReader, epoch" in header
    assert "hpu:0 (simulated GAUDI2)" in header
    page.wait_for_timeout(8_000)
    keep_screenshot(page, panel.last, "panel.png", tmp_path)
    colours, theme = page.evaluate(TEXT_COLOURS)
    # Others are those of texts that there are none of, such as axis labels.
    assert theme in colours
    assert palette.TEXT not in colours
    choose_theme(page, "JupyterLab Dark")
    page.wait_for_timeout(1_000)
    keep_screenshot(page, panel.last, "panel-dark.png", tmp_path)
    dark, dark_theme = page.evaluate(TEXT_COLOURS)
    assert faint_texts(page, ".jp-OutputArea-output .bk-label") == []
    assert dark_theme in dark
    assert not {palette.TEXT, theme} & {*dark}
    assert faint_texts(page, ".jp-OutputArea-output .widget-html") == []
    choose_theme(page, "JupyterLab Light")
    assert faint_texts(page, ".jp-OutputArea-output .widget-html") == []

    stop.click()
    pressed = time.monotonic()
    output = page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    wait_until(page, lambda: shows_text(output), 20, "the end of the fit after Stop")
    assert time.monotonic() - pressed < 20
    assert output.first.inner_text().strip() == "outcome: stopped"
    assert page.locator(".jp-RenderedText[data-mime-type*='stderr']").count() == 0
    assert page.problems == []


def test_saved_notebook_holds_the_picture_and_no_script(page: Any, lab: Any) -> None:
    short = FIT.replace("400", "3")
    open_notebook(page, lab, "saved.ipynb", SETUP, short, AFTER)
    run_all(page)
    output = page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    wait_until(page, lambda: shows_text(output), 240, "the end of the fit")
    assert output.first.inner_text().strip() == "outcome: finished"
    page.keyboard.press("Control+s")
    file = lab.folder / "saved.ipynb"

    def outputs() -> list[Any]:
        try:
            return json.loads(file.read_text())["cells"][1]["outputs"]
        except json.JSONDecodeError:  # while it is being written
            return []

    wait_until(page, lambda: bool(outputs()), 10, "the saving of the notebook")
    assert [sorted(one["data"]) for one in outputs()] == [
        ["image/svg+xml", "text/plain"],
        ["text/html", "text/plain"],
    ]
    assert file.stat().st_size < 100_000


def test_memory_panel_moves_and_its_button_leaves_a_picture(page: Any, lab: Any) -> None:
    allocate = "import torch, time\nkept = []\nfor _ in range(60):\n"
    allocate += "    kept.append(torch.zeros(1 << 18, device='hpu'))\n    time.sleep(0.1)"
    open_notebook(
        page, lab, "memory.ipynb", "%load_ext hpu_magic", "%hpu_panel --interval 0.1", allocate
    )
    run_all(page)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    wait_until(page, lambda: "MiB in use" in cells.nth(1).inner_text(), 120, "memory in use")
    before = cells.nth(1).inner_text()
    wait_until(page, lambda: cells.nth(1).inner_text() != before, 10, "a change of memory")
    assert busy_prompt(page, 2), "the panel has to move while another cell is busy"
    page.get_by_role("button", name="Stop").click()
    picture = cells.nth(1).locator(".jp-RenderedSVG")
    picture.wait_for(timeout=20_000)
    assert page.problems == []
