"""What panels draw, what they leave in a notebook, and that they never grow."""

from __future__ import annotations

import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import nbformat
import numpy as np
import pytest
from bokeh.document import Document
from nbclient import NotebookClient
from small_fit import layout

from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import Change, News, RunRecord
from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.training.curves import Curve, Point
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Mark, Sampler, Subscription

FIT = """
import torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(640, 8)), 16)
trainer = pl.Trainer(accelerator="hpu", devices=1, max_epochs=20, logger=False,
                     enable_checkpointing=False, enable_model_summary=False)
"""


BROKEN = """
class Broken(Model):
    def training_step(self, batch, index):
        if self.global_step == 45: raise ValueError('the data is broken')
        return super().training_step(batch, index)
"""
CELLS = {
    "load": "%load_ext hpu_magic",
    "panel without a card": "%hpu_memory_live",
    "its end": "%hpu_memory_live off",
    "panel": "%hpu_memory_live --interval 0.05",
    "work": "import torch, time\nkept = torch.zeros(1 << 20, device='hpu')\ntime.sleep(1)",
    "end of the panel": "%hpu_memory_live off",
    "model": FIT,
    "fit": "%%hpu_fit\ntrainer.fit(Model(), data)",
    "another trainer": FIT,
    "fit of a line": "model = Model()\n%hpu_fit trainer model data",
    "its result": "_",
    "broken model": FIT + BROKEN,
    "failed fit": "%%hpu_fit\ntrainer.fit(Broken(), data)",
}


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    """Cells that a real kernel has run, one after the other, as they would be saved."""
    cells = {name: nbformat.v4.new_code_cell(source) for name, source in CELLS.items()}
    cells["failed fit"].metadata.tags = ["raises-exception"]
    whole = nbformat.v4.new_notebook(cells=list(cells.values()))
    NotebookClient(whole, timeout=240, kernel_name="python3").execute()
    return dict(zip(cells, whole.cells, strict=True))


def shown(cell: Any) -> list[Any]:
    """Return what a cell shows besides text that it printed."""
    return [output for output in cell.outputs if "data" in output]


def test_trace_covers_the_whole_run_in_bounded_space() -> None:
    trace = Trace(("time", "value"), capacity=100)
    for index in range(12_345):
        trace.add(float(index), math.sin(index))
        assert len(trace) <= 100
    times = trace.data()["time"]
    assert times[0] == 0
    assert times[-1] > 12_000
    steps = {later - earlier for earlier, later in itertools.pairwise(times)}
    assert steps == {float(trace.stride)}


def test_window_keeps_the_end() -> None:
    window = Window(("time", "value"), capacity=3)
    for index in range(10):
        window.add(float(index), 0.0)
    assert window.data()["time"] == [7.0, 8.0, 9.0]


def log(sampler: Sampler, curve: Curve, moment: float, value: float, step: int = 0) -> None:
    """Give a curve a value, as the callback does."""
    epoch = step // 50
    curve.last = Point(moment, value, step, epoch)
    sampler.record(curve.series, moment=moment, value=value, step=float(step), epoch=float(epoch))


def fit_of(sampler: Sampler, began: float) -> tuple[RunRecord, Curve, Curve]:
    """Return the record of a fit, its loss and its validation loss."""
    progress = FitProgress(began=began)
    train = progress.curves.follow("loss", "loss", "training", "step", returned=True)
    validation = progress.curves.follow("val_loss", "loss", "validation", "epoch")
    assert train is not None
    assert validation is not None
    return RunRecord(sampler, began, progress=progress), train, validation


def recorded(rows: int, **marks: str) -> RunRecord:
    sampler = Sampler()
    record, train, validation = fit_of(sampler, 100.0)
    for index in range(rows):
        moment = 100.0 + index / 10
        log(sampler, train, moment, 2.0 / (1 + index), index)
        sampler.record("speed", moment=moment, steps_per_second=400.0, step=float(index))
        sampler.record("memory", moment=moment, in_use=14e6, peak=20e6, limit=96 * 2**30)
        if index % 50 == 20:
            log(sampler, validation, moment, 2.1 / (1 + index), index)
        for kind, text in marks.items():
            if index == 3:
                sampler.mark(kind, text, moment)
        record.news()
    record.news(100.0 + rows / 10)
    return record


def test_picture_is_one_small_svg_without_script() -> None:
    picture = draw(recorded(100_000))
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert len(picture.encode()) < 50_000
    assert not [node for node in root.iter() if node.tag.endswith(("script", "image", "use"))]
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    best = "loss, best 2.101e-05 in epoch 2000"
    assert {best, "training", "validation", "steps per second"} <= set(words)
    assert "device memory: 19.1 MiB peak, 0.02 % of 96 GiB" in words


def test_picture_marks_compilations() -> None:
    assert "vertical lines: graph compilations" in draw(recorded(20, compilation="1 graph"))
    assert "2 graphs in 1 s" in draw(recorded(20, compilation="2 graphs in 1 s"))
    assert "compilations" not in draw(recorded(20))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_picture_of_almost_nothing_is_still_a_picture(rows: int) -> None:
    assert ElementTree.fromstring(draw(recorded(rows))).tag.endswith("svg")


def test_picture_survives_a_loss_that_is_not_finite() -> None:
    sampler = Sampler()
    record, train, validation = fit_of(sampler, 0.0)
    for index, loss in enumerate((1.0, math.inf, math.nan, 0.0, -1.0)):
        log(sampler, train, float(index), loss)
        log(sampler, validation, float(index), loss)
        record.news(float(index))
    picture = draw(record)
    assert "nan" not in picture.lower()
    assert "inf" not in picture.lower()
    assert picture.count("M") >= 4  # each curve in two pieces


@pytest.fixture
def sent() -> tuple[Any, list[Any]]:
    """Charts and what they send to the browser."""
    from hpu_magic.panels.charts import Charts

    charts, parts = Charts(capacity=50), []
    charts.connect(parts.append)
    return charts, parts


def test_charts_do_not_grow(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    sampler = Sampler()
    record, train, validation = fit_of(sampler, 0.0)
    for index in range(200):
        log(sampler, train, float(index), 1.0, index)
        log(sampler, validation, float(index), 1.0, index)
        sampler.record("speed", moment=float(index), steps_per_second=1.0, step=float(index))
        charts.draw(record, record.news())
        if index == 0:
            models = len(charts.layout.references())
            charts.flush()
            del parts[:]
    charts.flush()
    assert len(parts) == 1
    charts.draw(record, record.news())
    charts.flush()
    assert len(parts) == 1
    assert len(charts.layout.references()) == models
    assert charts._lines.data["time"] == []


def test_rows_reach_the_browser_as_bokeh_would_send_them(sent: tuple[Any, list[Any]]) -> None:
    from bokeh.document.events import ColumnsStreamedEvent, ModelChangedEvent
    from bokeh.protocol import Protocol

    charts, parts = sent
    document = Document()
    document.add_root(charts.layout)
    record = RunRecord(Sampler(), 0.0)
    lines = Change([(0.1, 1.0, math.inf, 3.0, -math.inf), (0.2, math.nan, 2.0, 3.0, 4.0)])
    record.peak, record.limit = 4.0, 5.0
    news = News(lines, marks=[Mark(0.2, "compilation", 'one "graph"')])
    charts.draw(record, news)
    charts.flush()
    memory = charts._plots[-1]
    title, pool = memory.plot.title, memory._pool
    columns = {
        "time": [0.1, 0.2],
        "step": [1.0, math.nan],
        "speed": [math.inf, 2.0],
        "in_use": [3.0, 3.0],
        "peak": [-math.inf, 4.0],
    }
    mark = {"time": [0.2], "step": [math.nan], "text": ['one "graph"']}
    events = [
        ModelChangedEvent(document, title, "text", "device memory: 4 B peak, 80 % of 5 B"),
        ColumnsStreamedEvent(document, charts._lines, "data", columns, 50),
        ColumnsStreamedEvent(document, charts._marks, "data", mark, 200),
        ModelChangedEvent(document, pool, "data", {"limit": [5.0]}),
    ]
    theirs = Protocol().create("PATCH-DOC", events)
    assert parts == [json.loads(theirs.content_json)["events"]]


def test_thinned_lines_are_sent_whole(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    record = recorded(3)
    charts.draw(record, News(Change([(0.1, 1.0, 2.0, 3.0, 4.0)])))
    charts.draw(record, News(Change(thinned=True)))
    charts.flush()
    [whole] = [one for one in parts[0] if one["model"]["id"] == charts._lines.id]
    assert whole["kind"] == "ModelChanged"
    assert dict(whole["new"]["entries"])["time"] == record.lines.data()["time"]


def test_a_page_that_opens_later_receives_all_rows(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    sampler = Sampler()
    record, train, _ = fit_of(sampler, 0.0)
    document = Document()
    document.add_root(charts.layout)

    def draw_steps(first: int, last: int) -> None:
        for index in range(first, last):
            log(sampler, train, float(index), 9.0 - index / 10, index)
            sampler.record("memory", moment=float(index), in_use=1.0, peak=2.0, limit=4.0)
        charts.draw(record, record.news())

    sampler.record("epochs", moment=0.0, number=1.0, step=0.0, length=30.0)
    draw_steps(0, 60)
    charts.flush()
    draw_steps(60, 61)  # which no page has
    heard: list[Any] = []
    document.on_change(lambda event: heard.append(event.setter))
    charts.restore("a page")
    assert set(heard) == {"a page"}
    [metric] = charts._metrics
    [curve] = metric._sources.values()
    lines, steps = charts._lines.data, [float(index) for index in range(61)]
    assert lines["time"] == steps[-50:]  # the capacity of the charts
    assert all(map(math.isnan, lines["speed"]))
    assert curve.data["step"][-1] == steps[-1]
    assert metric._best.data == {"time": [60.0], "step": [60.0], "value": [3.0]}
    assert metric.plot.title.text == "loss, best seen 3 at step 60"
    assert charts._epochs.data["number"] == [1.0]
    assert charts._plots[-1]._pool.data == {"limit": [4.0]}
    charts.flush()
    assert len(parts) == 2  # the pages that were open have the last step too


def test_record_of_a_fit_begins_with_the_fit() -> None:
    sampler = Sampler()
    sampler.record("train", moment=1.0, value=9.0, step=1.0, epoch=0.0)
    sampler.mark("compilation", "of the fit before", 1.0)
    record, train, _ = fit_of(sampler, 2.0)
    log(sampler, train, 3.0, 8.0, 2)
    news = record.news(3.0)
    assert [row for change in news.curves.values() for row in change.rows] == [(1.0, 2.0, 0.0, 8.0)]
    assert news.marks == []


def test_record_has_a_row_for_each_sample_with_what_was_known_then() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0)
    for moment in (1.0, 2.0, 3.0):
        sampler.record("memory", moment=moment, in_use=moment, peak=9 - moment, limit=10.0)
        sampler.record("speed", moment=moment + 0.5, steps_per_second=10 * moment, step=moment)
    nan = math.nan
    rows = record.news().lines.rows
    np.testing.assert_equal(
        rows, [(1.0, nan, nan, 1.0, 8.0), (2.0, 1.0, 10.0, 2.0, 7.0), (3.0, 2.0, 20.0, 3.0, 6.0)]
    )
    assert not record.news().lines
    np.testing.assert_equal(record.news(4.0).lines.rows, [(4.0, 3.0, 30.0, 3.0, 6.0)])
    assert (record.peak, record.limit) == (8.0, 10.0)


@pytest.mark.parametrize(("rate", "pause", "gap"), [(10.0, 0.9, False), (10.0, 1.5, True)])
@pytest.mark.parametrize("slower", [1, 10])
def test_missing_time_is_a_gap(rate: float, pause: float, gap: bool, slower: int) -> None:
    sampler = Sampler()
    sampler._subscriptions.append(Subscription(sampler, None, rate / slower))
    pause *= {1: 1, 10: 5}[slower]
    record = RunRecord(sampler, began=0.0)
    for moment in (1.0, 1.1, 1.1 + pause, 1.2 + pause):
        sampler.record("memory", moment=moment, in_use=1.0, peak=1.0, limit=10.0)
        record.news()
    used = record.lines.data()["in_use"]
    nan = math.nan
    np.testing.assert_equal(used, [1.0, 1.0, nan, 1.0, 1.0] if gap else [1.0] * 4)
    shown = layout(draw(record, ("memory",)))
    lines = [node.get("d", "") for node in shown.iter() if node.tag.endswith("path")]
    assert [line.count("M") for line in lines] == ([2, 2] if gap else [1, 1])


def test_gaps_outlive_thinning() -> None:
    trace = Trace(("time", "value"), capacity=8)
    for index in range(40):
        trace.add(float(index), math.nan if index == 11 else 1.0)
        assert len(trace) <= 8
    known = [time for time, one in zip(*trace.data().values(), strict=True) if one == 1.0]
    assert [time for time in trace.data()["time"] if time not in known] == [11.0]
    window = Window(("time", "value"), capacity=4)
    given = [(0.0, math.nan), (1.0, 1.0), (2.0, math.nan)]
    assert [window.add(*row).rows for row in given] == [[], [given[1]], [given[2]]]


def test_record_without_memory_has_a_row_for_each_pace() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0, memory=False)
    for moment in (1.0, 2.0, 9.0):  # slow batches are no gaps
        sampler.record("speed", moment=moment, steps_per_second=5.0, step=10 * moment)
    rows = record.news().lines.rows
    assert [row[:3] for row in rows] == [(1.0, 10.0, 5.0), (2.0, 20.0, 5.0), (9.0, 90.0, 5.0)]


def test_record_tells_new_validation_points_however_many_there_were() -> None:
    sampler = Sampler()
    record, _, validation = fit_of(sampler, 0.0)
    for index in range(3000):
        log(sampler, validation, float(index), 1.0, index)
        news = record.news()
        if index < 1000:
            assert news.curves[validation].rows == [
                (float(index), float(index), float(index // 50), 1.0)
            ]
    assert len(record.curves[validation]) <= 1000


def test_fit_leaves_a_picture_and_a_table_that_need_no_kernel(notebook: dict[str, Any]) -> None:
    table, picture = shown(notebook["fit"])
    assert ElementTree.fromstring(picture.data["image/svg+xml"]).tag.endswith("svg")
    assert re.search(r"Fit finished on HPU \d \(simulated GAUDI2\)", table.data["text/html"])
    assert re.search(r"Fit finished on HPU \d \(simulated GAUDI2\)", table.data["text/plain"])
    assert "<script" not in table.data["text/html"]
    kinds = {kind for output in (picture, table) for kind in output.data}
    assert kinds == {"image/svg+xml", "text/html", "text/plain"}


def test_fit_adds_at_most_100_kb_to_the_notebook(notebook: dict[str, Any]) -> None:
    fitted = [notebook[name] for name in ("load", "model", "fit")]
    assert len(nbformat.writes(nbformat.v4.new_notebook(cells=fitted)).encode()) < 100_000


def test_result_is_shown_once_where_the_fit_ran_and_again_where_it_is_asked_for(
    notebook: dict[str, Any],
) -> None:
    kinds = [["text/html", "text/plain"], ["image/svg+xml", "text/plain"]]
    for name in ("fit of a line", "its result"):
        assert [sorted(output.data) for output in shown(notebook[name])] == kinds


def test_failed_fit_leaves_its_curves_and_names_the_step(notebook: dict[str, Any]) -> None:
    failed = notebook["failed fit"]
    html = "".join(output.data.get("text/html", "") for output in shown(failed))
    assert re.search(
        r"Fit failed on HPU \d \(simulated GAUDI2\) in epoch 2 of 20, batch 6 of 40", html
    )
    assert "ValueError: the data is broken" in html
    errors = [output.ename for output in failed.outputs if output.output_type == "error"]
    assert errors == ["ValueError"]


def test_memory_panel_goes_on_across_cells_and_leaves_a_picture(notebook: dict[str, Any]) -> None:
    [panel] = shown(notebook["panel"])
    assert ElementTree.fromstring(panel.data["image/svg+xml"]).tag.endswith("svg")
    assert "4.00 MiB" in panel.data["text/plain"]


def test_memory_panel_before_the_first_tensor_says_so(notebook: dict[str, Any]) -> None:
    [panel] = shown(notebook["panel without a card"])
    assert "no card" in panel.data["text/plain"]


def test_panel_outside_a_notebook_is_a_table(run: Callable[[str], Any], torch: Any) -> None:
    held = run("import torch\nheld = torch.zeros(1, device='hpu')\n%hpu_memory_live").out
    assert held.count("MaxInUse") == held.count("Held by variables") == 1
    assert "  held  " in held
    assert "A live panel needs a notebook: these are the current figures" in held
    assert "it needs a notebook" in run("%hpu_memory_live off").err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%hpu_memory_live --interval 0", "must be 0.02 to 60 seconds, got 0"),
        ("%hpu_memory_live --interval often", "needs a number after --interval"),
        ("%hpu_memory_live --history 0.5", "must be 1 to 86400 seconds, got 0.5"),
        ("%hpu_memory_live off", "No panel is live"),
        ("%hpu_memory_live now", "needs on or off, not 'now'"),
        ("%hpu_memory_live --color", "no option '--color'"),
    ],
)
def test_wrong_panel_options_get_one_sentence(
    run: Callable[[str], Any], line: str, sentence: str
) -> None:
    cell = run(line)
    assert type(cell.error).__name__ == "UsageError"
    assert sentence in str(cell.error)
