"""Test the live panel in a real JupyterLab and a real Chromium."""

import math
import re

import pytest
from lab_page import (
    busy_prompt,
    choose_theme,
    faint_texts,
    keep_screenshot,
    open_notebook,
    run_all,
    run_notebook,
    screenshots,
    wait_until,
)

from hpu_magic.panels import palette

pytestmark = pytest.mark.browser

SETUP = """
%load_ext hpu_magic
import logging, time, warnings
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
    def scored(self, batch):
        time.sleep(0.01)  # leaves time for the page on a machine with two cores
        scores = self.network(batch[0])
        right = (scores.argmax(1) == batch[1]).float().mean()
        return nn.functional.cross_entropy(scores, batch[1]), right
    def training_step(self, batch, index):
        loss, accuracy = self.scored(batch)
        self.log("train_accuracy", accuracy, prog_bar=True)
        return loss
    def validation_step(self, batch, index):
        loss, accuracy = self.scored(batch)
        self.log_dict({"val_loss": loss, "val_accuracy": accuracy}, prog_bar=True)
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
  if (!window.Bokeh) {
    return 0  // not loaded yet
  }
  const sources = Object.values(Bokeh.index.roots ?? Bokeh.index)
    .flatMap(view => [...view.model.references()])
  const lines = sources.find(one => one.data && "in_use" in one.data)
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


METRICS = """
class Adversary(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.nets = nn.ModuleList([nn.Linear(64, 1), nn.Linear(64, 1)])
    def training_step(self, batch, index):
        for name, net, optimizer in zip("gd", self.nets, self.optimizers()):
            loss = net(batch[0].flatten(1)).square().mean()
            self.log(f"{name}_loss", loss, prog_bar=True)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
    def configure_optimizers(self):
        return [torch.optim.SGD(net.parameters(), lr=1e-3) for net in self.nets]

class Verbose(DigitReader):
    def training_step(self, batch, index):
        loss, accuracy = self.scored(batch)
        self.log("train_loss", loss, prog_bar=True, on_step=True, on_epoch=True)
        self.log("scale", 1e4 * loss)
        late = self.trainer.current_epoch > 1
        self.log("odd", accuracy * float("nan") if late else accuracy)
        return loss

def trainer(**options):
    return pl.Trainer(accelerator="hpu", devices=1, logger=False, enable_checkpointing=False,
                      enable_model_summary=False, **options)
"""
MANUAL = "%%hpu_fit -o manual\ntrainer(max_epochs=2).fit(Adversary(), loaders[0])"
VERBOSE = """%%hpu_fit -o result
trainer(max_epochs=400, accumulate_grad_batches=2).fit(Verbose(), *loaders)"""

# Titles and axis ends of the charts, and the smooth and raw lines of the first curve.
DRAWN = """() => [...(window.Bokeh?.index?.roots ?? [])].some(
  view => view.model.children?.some(one => one.title))"""


CHARTS = """() => {
  const roots = [...(Bokeh.index.roots ?? Object.values(Bokeh.index))]
  const [root] = roots.filter(view => view.model.children?.some(one => one.title)).slice(-1)
  const plots = root.model.children.filter(one => one.title)
  const curve = plots[0].renderers.filter(one => one.tags !== undefined
    && one.data_source.data.value && one.glyph.type === "Line").slice(0, 2)
  const drawn = curve.map(one => [...one.glyph.y.transform.v_compute(one.data_source.data.value)])
  return {
    titles: plots.map(one => one.title.text),
    memory: plots[plots.length - 1].y_range.end,
    end: plots[0].x_range.end,
    raw: drawn[0],
    smooth: drawn[1],
    values: [...curve[0].data_source.data.value],
    places: [...curve[0].glyph.x.transform.v_compute(curve[0].data_source.data.time)],
    steps: [...curve[0].data_source.data.step],
    epochs: plots[0].above.find(one => one.ticker)?.ticker.ticks.length,
  }
}"""


# The text of each legend entry, and whether a sample of the curve is drawn next to it.
LEGENDS = """() => {
  const found = []
  const visit = node => {
    if (node.classList?.contains("bk-item")) {
      const canvas = node.querySelector("canvas")
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
      found.push([node.innerText.trim(), pixels.some(one => one > 0)])
    }
    const inner = [...node.children, ...(node.shadowRoot?.children ?? [])]
    inner.forEach(visit)
  }
  ;[...document.querySelectorAll(".hpu-magic-live")].forEach(visit)
  return found
}"""


# The titles that are covered by a legend, leave their chart or touch the top label of its axis.
COVERED = """() => {
  const legends = node => [...node.children, ...(node.shadowRoot?.children ?? [])].flatMap(one =>
    one.classList.contains("bk-Legend") && one.getClientRects().length ? [one] : legends(one))
  const roots = [...(Bokeh.index.roots ?? Object.values(Bokeh.index))]
  const [root] = roots.filter(view => view.model.children?.some(one => one.title)).slice(-1)
  const found = []
  for (const view of root.child_views.filter(one => one.model.title)) {
    const pen = document.createElement("canvas").getContext("2d")
    pen.font = view.model.title.text_font_size + " " + view.model.title.text_font
    const {text, offset} = view.model.title
    const box = view.el.getBoundingClientRect()
    const end = box.left + view.model.min_border_left + offset + pen.measureText(text).width
    if (end > box.right) found.push(text)
    const half = parseFloat(view.model.left[0].major_label_text_font_size) / 2
    if (offset < 0 && view.model.title.standoff < half + 3) found.push(text)
    for (const legend of legends(view.el)) {
      const {left, top, right} = legend.getBoundingClientRect()
      if ((left < end && top < box.top + 14) || left < box.left || right > box.right)
        found.push(text)
    }
  }
  return found
}"""


RATIO = """() => {
  const {naturalWidth, naturalHeight} =
    [...document.querySelectorAll(".jp-RenderedSVG img")].slice(-1)[0]
  return naturalHeight / naturalWidth
}"""


def shows_text(output):
    """Return whether an output exists and contains visible text."""
    return output.count() > 0 and output.first.inner_text().strip() != ""


def test_curve_grows_and_stop_works_while_the_cell_is_busy(page, lab, tmp_path):
    run_notebook(page, lab, "fit.ipynb", SETUP, FIT, AFTER)
    stop = page.get_by_role("button", name="Stop")
    stop.wait_for()
    wait_until(page, lambda: page.evaluate(POINTS) > 10, "a curve of ten points")

    seen, busy = page.evaluate(POINTS), busy_prompt(page, 1)
    wait_until(page, lambda: page.evaluate(POINTS) > seen + 5, "a longer curve")
    assert busy
    assert busy_prompt(page, 1), "the curve must grow while the cell is busy"

    panel = page.locator(".jp-Notebook .jp-CodeCell").nth(1).locator(".hpu-magic-live")
    values = r"\bloss [\d.]+, train_accuracy [\d.]+, val_loss [\d.]+, val_acc"
    wait_until(page, lambda: bool(re.search(values, panel.inner_text())), "the validation")
    header = panel.inner_text()
    assert "Training DigitReader, epoch" in header
    assert re.search(r"HPU \d \(simulated GAUDI2\)", header)
    looks = []
    for _ in range(15):
        page.wait_for_timeout(200)
        looks.append(page.evaluate(LEGENDS))
    both = [["training", True], ["validation", True]]
    memory = [["in use", True], ["peak", True]]
    assert [look for look in looks if look != 2 * both + memory] == []
    assert page.evaluate(COVERED) == []
    keep_screenshot(page, panel, "panel.png", tmp_path)
    colours, theme = page.evaluate(TEXT_COLOURS)
    # Other colors belong to empty texts, such as axis labels.
    assert theme in colours
    assert palette.TEXT not in colours
    choose_theme(page, "JupyterLab Dark")
    page.wait_for_timeout(1_000)
    keep_screenshot(page, panel, "panel-dark.png", tmp_path)
    dark, dark_theme = page.evaluate(TEXT_COLOURS)
    assert faint_texts(page, ".jp-OutputArea-output .bk-label") == []
    assert dark_theme in dark
    assert not {palette.TEXT, theme} & {*dark}
    assert faint_texts(page, ".jp-OutputArea-output .widget-html") == []
    choose_theme(page, "JupyterLab Light")
    assert faint_texts(page, ".jp-OutputArea-output .widget-html") == []
    page.set_viewport_size({"width": 700, "height": 1000})
    page.wait_for_timeout(1_000)
    assert page.evaluate(COVERED) == []
    page.set_viewport_size({"width": 1280, "height": 1000})

    stop.click()
    output = page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
    wait_until(page, lambda: shows_text(output), "the end of the fit after Stop")
    assert output.first.inner_text().strip() == "outcome: stopped"
    assert page.locator(".jp-RenderedText[data-mime-type*='stderr']").count() == 0


def test_memory_panel_is_live_and_ends_as_a_picture(page, lab):
    allocate = "import torch, time\nfor step in range(6000):\n"
    allocate += "    kept = torch.zeros(step % 60 + 1, 1 << 18, device='hpu')\n    time.sleep(0.1)"
    open_notebook(
        page,
        lab,
        "memory.ipynb",
        "%load_ext hpu_magic",
        "%hpu_memory_live --interval 0.1",
        allocate,
    )
    run_all(page)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    wait_until(page, lambda: "MiB in use" in cells.nth(1).inner_text(), "memory in use")
    before = cells.nth(1).inner_text()
    wait_until(page, lambda: cells.nth(1).inner_text() != before, "a change of memory")
    assert busy_prompt(page, 2), "the panel must be updated while another cell is busy"
    page.get_by_role("button", name="Stop").click()
    picture = cells.nth(1).locator(".jp-RenderedSVG")
    picture.wait_for()


def test_user_adds_charts_and_changes_axis_and_smoothing(page, lab, tmp_path):
    last = "print(manual.outcome, result.outcome)"
    run_notebook(page, lab, "metrics.ipynb", SETUP + METRICS, MANUAL, VERBOSE, last)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    panel = cells.nth(2).locator(".hpu-magic-live")
    panel.wait_for()
    wait_until(page, lambda: "odd NaN since step" in panel.inner_text(), "NaN in the header")
    wait_until(page, lambda: page.evaluate(DRAWN), "the charts")
    charts = page.evaluate(CHARTS)
    names = [re.split("[,:]", title)[0] for title in charts["titles"]]
    assert names == ["loss", "val_accuracy", "steps per second", "device memory"]
    assert charts["titles"][3].endswith(" % of 96 GiB")
    assert ", best 0" in charts["titles"][1]
    shown = panel.inner_text()
    assert all(f"{name} " in shown for name in ("train_loss_step", "train_loss_epoch", "val_loss"))
    # The loss is shown once, without the division for accumulation.
    assert re.search(r"train_loss_step [12]\.\d", shown), shown
    assert "scale" not in names
    legend = [["training", True], ["training by epoch", True], ["validation", True]]
    legend += [["in use", True], ["peak", True]]
    wait_until(page, lambda: page.evaluate(LEGENDS) == legend, f"{legend}")

    assert busy_prompt(page, 2), "the metric must be added while the cell is busy"
    page.get_by_label("Add metric").select_option("scale")
    wait_until(page, lambda: "scale " in panel.inner_text(), "the value of the added metric")
    wait_until(page, lambda: len(page.evaluate(CHARTS)["titles"]) == 5, "its chart")
    assert page.evaluate(CHARTS)["titles"][2] == "scale"
    assert page.get_by_label("Add metric").input_value() == "3 of 4 drawn"

    assert charts["memory"] < 2**30
    page.get_by_label("Memory").select_option("whole card")
    wait_until(page, lambda: page.evaluate(CHARTS)["memory"] > 96 * 2**30, "the whole card")

    before = page.evaluate(CHARTS)
    assert before["smooth"] == before["values"]
    assert all(map(math.isnan, before["raw"]))
    page.get_by_label("Smoothing").select_option("0.9")
    after = page.evaluate(CHARTS)
    assert after["raw"] == after["values"]
    mean, weight, expected = 0.0, 0.0, []
    for value in after["values"]:
        mean, weight = 0.9 * mean + 0.1 * value, 0.9 * weight + 0.1
        expected.append(mean / weight)
    assert after["smooth"] == pytest.approx(expected)

    page.get_by_label("Axis").select_option("by step")
    stepped = page.evaluate(CHARTS)
    assert stepped["places"] == stepped["steps"]
    assert stepped["end"] >= stepped["steps"][-1]
    page.get_by_label("Axis").select_option("by epoch")
    by_epoch = page.evaluate(CHARTS)
    # 45 batches in steps of two; the last step of an epoch has one batch.
    assert by_epoch["places"] == pytest.approx([each / 23 for each in by_epoch["steps"]])
    assert by_epoch["epochs"] >= 2

    for theme in ("Dark", "Light"):
        choose_theme(page, f"JupyterLab {theme}")
        page.wait_for_timeout(500)
        keep_screenshot(page, panel, f"metrics-{theme.lower()}.png", tmp_path)
        assert faint_texts(page, ".hpu-magic-live") == []
    for width in (1280, 900, 800, 700):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(1_000)
        assert page.evaluate(COVERED) == [], width
    page.set_viewport_size({"width": 600, "height": 1000})
    page.wait_for_timeout(1_000)
    keep_screenshot(page, panel, "metrics-narrow.png", tmp_path)
    page.get_by_role("button", name="Stop").click()
    output = cells.nth(3).locator(".jp-OutputArea-output")
    wait_until(page, lambda: shows_text(output), "the end of the fit")
    assert output.first.inner_text().strip() == "finished stopped"

    room = cells.nth(2).locator(".jp-OutputArea").bounding_box()
    picture = cells.nth(2).locator(".jp-RenderedSVG img")
    box = picture.bounding_box()
    assert 0 < box["width"] <= room["width"] < 500
    assert box["height"] == pytest.approx(box["width"] * page.evaluate(RATIO), rel=0.02)
    assert "odd NaN since step" in cells.nth(2).inner_text()
    manual = cells.nth(1).locator(".jp-RenderedSVG img").get_attribute("src")
    assert "d_loss%2C%20best" in manual
    assert "g_loss%2C%20best" in manual
    page.screenshot(path=screenshots(tmp_path) / "metrics-after.png")


# A loader of unknown length; the first validation is the best.
STREAM = """
%load_ext hpu_magic
import time, torch, hpu_magic
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(24))
stream = torch.utils.data.DataLoader(Stream(), batch_size=1)
for epoch in range(200):
    for batch in hpu_magic.watch(stream):
        time.sleep(0.05)
        hpu_magic.watch.log(loss=1.0)
    with torch.no_grad():
        for batch in hpu_magic.watch([0]):
            hpu_magic.watch.log(loss=0.5 + epoch)
"""
# Positions of the ring around the best value and of this value on the curve, and the number of
# values of the curve.
RING = """() => {
  const roots = [...(Bokeh.index.roots ?? Object.values(Bokeh.index))]
  const [root] = roots.filter(view => view.model.children?.some(one => one.title)).slice(-1)
  const plot = root?.child_views.find(view => view.model.title)
  const dots = [...plot?.renderer_views.values() ?? []]
    .filter(view => view.model.glyph?.type === "Scatter" && view.glyph.x)
  const ring = dots.find(view => view.model.glyph.size.value === 11)
  const steps = view => [...view.model.data_source.data.step ?? []]
  const step = ring && steps(ring)[0]
  const curve = dots.find(view => view !== ring && steps(view).includes(step))
  return curve
    ? [ring.glyph.x[0], curve.glyph.x[steps(curve).indexOf(step)], steps(curve).length]
    : null
}"""


def test_best_value_is_on_its_curve_for_epochs_of_unknown_length(page, lab):
    run_notebook(page, lab, "stream.ipynb", STREAM)
    stop = page.get_by_role("button", name="Stop")
    stop.wait_for()
    page.get_by_label("Axis").select_option("by epoch")
    wait_until(page, lambda: page.evaluate(DRAWN), "the charts")
    wait_until(page, lambda: bool(page.evaluate(RING)), "the first validation")
    places = []
    while (seen := page.evaluate(RING))[2] < 4:
        places.append(seen[:2])
        page.wait_for_timeout(100)
    assert [place for place in places if place[0] != place[1]] == []
    assert seen[:2] == pytest.approx([1, 1])
    stop.click()
