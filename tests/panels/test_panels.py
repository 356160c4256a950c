"""Test panels: charts, pictures, saved outputs and size limits."""

import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree

import nbformat
import numpy as np
import pytest
from bokeh.document import Document
from logged_values import log
from nbclient import NotebookClient
from small_fit import TRAINER, layout

from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import Change, News, RunRecord
from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Mark, Sampler, Subscription

FIT = f"{TRAINER}\ndata, trainer = loader(640), make_trainer(max_epochs=20)"
BROKEN = """
class Broken(Layer):
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
    "fit": "%%hpu_fit\ntrainer.fit(Layer(), data)",
    "another trainer": FIT,
    "fit of a line": "model = Layer()\n%hpu_fit trainer model data",
    "its result": "_",
    "broken model": FIT + BROKEN,
    "failed fit": "%%hpu_fit\ntrainer.fit(Broken(), data)",
}


@pytest.fixture(scope="module")
def notebook(forked_kernels):
    """Cells with their saved outputs from a real kernel."""
    cells = {name: nbformat.v4.new_code_cell(source) for name, source in CELLS.items()}
    cells["failed fit"].metadata.tags = ["raises-exception"]
    whole = nbformat.v4.new_notebook(cells=list(cells.values()))
    with forked_kernels():
        NotebookClient(whole, timeout=240, kernel_name="python3").execute()
    return dict(zip(cells, whole.cells, strict=True))


def shown(cell):
    """Return the outputs of a cell without printed text."""
    return [output for output in cell.outputs if "data" in output]


def test_trace_covers_the_whole_run_with_limited_rows():
    trace = Trace(("time", "value"), capacity=100)
    for index in range(12_345):
        trace.add(float(index), math.sin(index))
        assert len(trace) <= 100
    times = trace.data()["time"]
    assert times[0] == 0
    assert times[-1] > 12_000
    steps = {later - earlier for earlier, later in itertools.pairwise(times)}
    assert steps == {float(trace.stride)}


def test_window_keeps_the_last_rows():
    window = Window(("time", "value"), capacity=3)
    for index in range(10):
        window.add(float(index), 0.0)
    assert window.data()["time"] == [7.0, 8.0, 9.0]


def fit_of(sampler, began):
    """Return the record of a fit, its loss curve and its validation loss curve."""
    progress = FitProgress(began=began)
    train = progress.curves.follow("loss", "loss", "training", "step", returned=True)
    validation = progress.curves.follow("val_loss", "loss", "validation", "epoch")
    return RunRecord(sampler, began, progress=progress), train, validation


def recorded(rows, **marks):
    sampler = Sampler()
    record, train, validation = fit_of(sampler, 100.0)
    for index in range(rows):
        moment = 100.0 + index / 10
        log(sampler, train, moment, 2.0 / (1 + index), index, index // 50)
        sampler.record("speed", moment=moment, steps_per_second=400.0, step=float(index))
        sampler.record("memory", moment=moment, in_use=14e6, peak=20e6, limit=96 * 2**30)
        if index % 50 == 20:
            log(sampler, validation, moment, 2.1 / (1 + index), index, index // 50)
        for kind, text in marks.items():
            if index == 3:
                sampler.mark(kind, text, moment)
        record.news()
    record.news(100.0 + rows / 10)
    return record


def test_picture_is_a_small_svg_without_scripts():
    picture = draw(recorded(100_000))
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert len(picture.encode()) < 50_000
    assert not [node for node in root.iter() if node.tag.endswith(("script", "image", "use"))]
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    best = "loss, best 2.101e-05 in epoch 2000"
    assert {best, "training", "validation", "steps per second"} <= set(words)
    assert "device memory: 19.1 MiB peak, 0.02 % of 96 GiB" in words


def test_picture_marks_compilations():
    assert "vertical lines: graph compilations" in draw(recorded(20, compilation="1 graph"))
    assert "2 graphs in 1 s" in draw(recorded(20, compilation="2 graphs in 1 s"))
    assert "compilations" not in draw(recorded(20))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_picture_of_a_few_rows_is_an_svg(rows):
    assert ElementTree.fromstring(draw(recorded(rows))).tag.endswith("svg")


def test_nonfinite_losses_interrupt_the_curve():
    sampler = Sampler()
    record, train, validation = fit_of(sampler, 0.0)
    for index, loss in enumerate((1.0, math.inf, math.nan, 0.0, -1.0)):
        log(sampler, train, float(index), loss)
        log(sampler, validation, float(index), loss)
        record.news(float(index))
    picture = draw(record)
    assert "nan" not in picture.lower()
    assert "inf" not in picture.lower()
    assert picture.count("M") >= 4  # two segments per curve


@pytest.fixture
def sent():
    """Charts and their messages to the browser."""
    from hpu_magic.panels.charts import Charts

    charts, parts = Charts(capacity=50), []
    charts.connect(parts.append)
    return charts, parts


def test_charts_keep_a_constant_number_of_models(sent):
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


def test_rows_are_sent_in_bokehs_format(sent):
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
    expected = Protocol().create("PATCH-DOC", events)
    assert parts == [json.loads(expected.content_json)["events"]]


def test_thinned_lines_are_sent_completely(sent):
    charts, parts = sent
    record = recorded(3)
    charts.draw(record, News(Change([(0.1, 1.0, 2.0, 3.0, 4.0)])))
    charts.draw(record, News(Change(thinned=True)))
    charts.flush()
    [event] = [event for event in parts[0] if event["model"]["id"] == charts._lines.id]
    assert event["kind"] == "ModelChanged"
    assert dict(event["new"]["entries"])["time"] == record.lines.data()["time"]


def test_page_opened_later_receives_all_rows(sent):
    charts, parts = sent
    sampler = Sampler()
    record, train, _ = fit_of(sampler, 0.0)
    document = Document()
    document.add_root(charts.layout)

    def draw_steps(first, last):
        for index in range(first, last):
            log(sampler, train, float(index), 9.0 - index / 10, index)
            sampler.record("memory", moment=float(index), in_use=1.0, peak=2.0, limit=4.0)
        charts.draw(record, record.news())

    sampler.record("epochs", moment=0.0, number=1.0, step=0.0, length=30.0)
    draw_steps(0, 60)
    charts.flush()
    draw_steps(60, 61)  # not sent yet
    setters = set()
    document.on_change(lambda event: setters.add(event.setter))
    charts.restore("a page")
    assert setters == {"a page"}
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
    assert len(parts) == 2  # open pages receive the last step, too


def test_record_contains_only_samples_of_its_fit():
    sampler = Sampler()
    sampler.record("train", moment=1.0, value=9.0, step=1.0, epoch=0.0)
    sampler.mark("compilation", "of the fit before", 1.0)
    record, train, _ = fit_of(sampler, 2.0)
    log(sampler, train, 3.0, 8.0, 2)
    news = record.news(3.0)
    assert [row for change in news.curves.values() for row in change.rows] == [(1.0, 2.0, 0.0, 8.0)]
    assert news.marks == []


def test_record_has_a_row_per_memory_sample_with_the_latest_speed():
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
def test_pause_in_samples_interrupts_the_lines(rate, pause, gap, slower):
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


def test_thinning_keeps_gaps():
    trace = Trace(("time", "value"), capacity=8)
    for index in range(40):
        trace.add(float(index), math.nan if index == 11 else 1.0)
        assert len(trace) <= 8
    known = [time for time, one in zip(*trace.data().values(), strict=True) if one == 1.0]
    assert [time for time in trace.data()["time"] if time not in known] == [11.0]
    window = Window(("time", "value"), capacity=4)
    rows = [(0.0, math.nan), (1.0, 1.0), (2.0, math.nan)]
    assert [window.add(*row).rows for row in rows] == [[], [rows[1]], [rows[2]]]


def test_record_without_memory_has_a_row_per_speed_sample():
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0, memory=False)
    for moment in (1.0, 2.0, 9.0):  # slow batches do not cause gaps
        sampler.record("speed", moment=moment, steps_per_second=5.0, step=10 * moment)
    rows = record.news().lines.rows
    assert [row[:3] for row in rows] == [(1.0, 10.0, 5.0), (2.0, 20.0, 5.0), (9.0, 90.0, 5.0)]


def test_record_reports_new_points_after_thinning():
    sampler = Sampler()
    record, _, validation = fit_of(sampler, 0.0)
    for index in range(3000):
        log(sampler, validation, float(index), 1.0, index)
        news = record.news()
        if index < 1000:
            assert news.curves[validation].rows == [(float(index), float(index), 0.0, 1.0)]
    assert len(record.curves[validation]) <= 1000


def test_saved_fit_consists_of_a_table_and_a_picture(notebook):
    table, picture = shown(notebook["fit"])
    assert ElementTree.fromstring(picture.data["image/svg+xml"]).tag.endswith("svg")
    assert re.search(r"Fit finished on HPU \d \(simulated GAUDI2\)", table.data["text/html"])
    assert re.search(r"Fit finished on HPU \d \(simulated GAUDI2\)", table.data["text/plain"])
    assert "<script" not in table.data["text/html"]
    kinds = {kind for output in (picture, table) for kind in output.data}
    assert kinds == {"image/svg+xml", "text/html", "text/plain"}


def test_fit_adds_less_than_100_kb_to_the_notebook(notebook):
    fitted = [notebook[name] for name in ("load", "model", "fit")]
    assert len(nbformat.writes(nbformat.v4.new_notebook(cells=fitted)).encode()) < 100_000


def test_result_is_shown_after_the_fit_and_again_on_request(notebook):
    kinds = [["text/html", "text/plain"], ["image/svg+xml", "text/plain"]]
    for name in ("fit of a line", "its result"):
        assert [sorted(output.data) for output in shown(notebook[name])] == kinds


def test_saved_failed_fit_names_the_step(notebook):
    failed = notebook["failed fit"]
    html = "".join(output.data.get("text/html", "") for output in shown(failed))
    assert re.search(
        r"Fit failed on HPU \d \(simulated GAUDI2\) in epoch 2 of 20, batch 6 of 40", html
    )
    assert "ValueError: the data is broken" in html
    errors = [output.ename for output in failed.outputs if output.output_type == "error"]
    assert errors == ["ValueError"]


def test_memory_panel_spans_cells_and_ends_as_a_picture(notebook):
    [panel] = shown(notebook["panel"])
    assert ElementTree.fromstring(panel.data["image/svg+xml"]).tag.endswith("svg")
    assert "4.00 MiB" in panel.data["text/plain"]


def test_memory_panel_without_a_card_reports_no_card(notebook):
    [panel] = shown(notebook["panel without a card"])
    assert "no card" in panel.data["text/plain"]


def test_memory_panel_in_a_terminal_is_a_table(run, torch):
    held = run("import torch\nheld = torch.zeros(1, device='hpu')\n%hpu_memory_live").out
    assert held.count("MaxInUse") == held.count("Held by variables") == 1
    assert "  held  " in held
    assert "A live panel requires a notebook; these are the current values" in held
    assert "it needs a notebook" in run("%hpu_memory_live off").err


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%hpu_memory_live --interval 0", "must be between 0.02 and 60 seconds, got 0"),
        ("%hpu_memory_live --interval often", "needs a number after --interval"),
        ("%hpu_memory_live --history 0.5", "must be between 1 and 86400 seconds, got 0.5"),
        ("%hpu_memory_live off", "No panel is live"),
        ("%hpu_memory_live now", "needs on or off, not 'now'"),
        ("%hpu_memory_live --color", "no option '--color'"),
    ],
)
def test_wrong_panel_option_raises_a_usage_error(rejected, line, sentence):
    assert sentence in rejected(line)
