"""What panels draw, what they leave in a notebook, and that they never grow."""

from __future__ import annotations

import itertools
import json
import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import nbformat
import numpy as np
import pytest
from bokeh.document import Document
from nbclient import NotebookClient

from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.trace import Trace, Window
from hpu_magic.runtime.measure.sampler import Sampler

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
    "panel without a card": "%hpu_panel",
    "its end": "%hpu_panel --stop",
    "panel": "%hpu_panel --interval 0.05",
    "work": "import torch, time\nkept = torch.zeros(1 << 20, device='hpu')\ntime.sleep(1)",
    "end of the panel": "%hpu_panel --stop",
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


def recorded(rows: int, **marks: str) -> RunRecord:
    sampler = Sampler()
    record = RunRecord(sampler, began=100.0)
    for index in range(rows):
        moment = 100.0 + index / 10
        sampler.record("train", moment=moment, loss=2.0 / (1 + index))
        sampler.record("speed", moment=moment, steps_per_second=400.0)
        sampler.record("memory", moment=moment, in_use=14e6, peak=20e6, limit=96 * 2**30)
        if index % 50 == 20:
            sampler.record("validation", moment=moment, loss=2.1 / (1 + index))
        for kind, text in marks.items():
            if index == 3:
                sampler.mark(kind, text, moment)
        record.take()
        record.new_marks()
    return record


def test_picture_is_one_small_svg_without_script() -> None:
    picture = draw(recorded(100_000))
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert len(picture.encode()) < 50_000
    assert not [node for node in root.iter() if node.tag.endswith(("script", "image", "use"))]
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert {"loss", "training", "validation", "steps per second"} <= set(words)
    assert any("96.0 GiB" in (text or "") for text in words)


def test_picture_marks_compilations() -> None:
    assert "vertical lines: graph compilations" in draw(recorded(20, compilation="1 graph"))
    assert "2 graphs in 1 s" in draw(recorded(20, compilation="2 graphs in 1 s"))
    assert "compilations" not in draw(recorded(20))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_picture_of_almost_nothing_is_still_a_picture(rows: int) -> None:
    assert ElementTree.fromstring(draw(recorded(rows))).tag.endswith("svg")


def test_picture_survives_a_loss_that_is_not_finite() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0)
    for index, loss in enumerate((1.0, math.inf, math.nan, 0.0, -1.0)):
        sampler.record("train", moment=float(index), loss=loss)
        sampler.record("validation", moment=float(index), loss=loss)
        record.take(float(index))
    picture = draw(record)
    assert "nan" not in picture.lower()
    assert "inf" not in picture.lower()


@pytest.fixture
def sent() -> tuple[Any, list[Any]]:
    """Charts and what they send to the browser."""
    from hpu_magic.panels.charts import Charts

    charts, parts = Charts(capacity=50), []
    charts.connect(parts.append)
    return charts, parts


def test_charts_do_not_grow(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    document_models = len(charts.layout.references())
    for index in range(200):
        charts.add((float(index), 1.0, 2.0, 3.0, 4.0))
        charts.add_validation(float(index), 1.0)
        charts.add_mark("epoch", float(index), "epoch")
    charts.flush()
    assert len(parts) == 1
    charts.flush()
    assert len(parts) == 1
    assert len(charts.layout.references()) == document_models
    assert charts._lines.data["time"] == []


def test_rows_reach_the_browser_as_bokeh_would_send_them(sent: tuple[Any, list[Any]]) -> None:
    from bokeh.document.events import ColumnsStreamedEvent
    from bokeh.protocol import Protocol

    charts, parts = sent
    document = Document()
    document.add_root(charts.layout)
    charts.add((0.1, math.nan, math.inf, 3.0, -math.inf))
    charts.add((0.2, 0.5, 2.0, 3.0, 4.0))
    charts.add_mark("compilation", 0.2, 'one "graph"')
    charts.flush()
    events = [
        ColumnsStreamedEvent(document, source, "data", data, rollover)
        for source, data, rollover in (
            (
                charts._lines,
                {
                    "time": [0.1, 0.2],
                    "train": [math.nan, 0.5],
                    "speed": [math.inf, 2.0],
                    "in_use": [3.0, 3.0],
                    "peak": [-math.inf, 4.0],
                },
                50,
            ),
            (charts._marks["compilation"], {"time": [0.2], "text": ['one "graph"']}, 200),
        )
    ]
    theirs = Protocol().create("PATCH-DOC", events)
    assert parts == [json.loads(theirs.content_json)["events"]]


def test_a_page_that_opens_later_is_given_what_others_have(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    for index in range(60):
        charts.add((float(index), 1.0, 2.0, 3.0, math.nan))
    charts.add_mark("epoch", 0.2, "epoch 1")
    charts.flush()
    charts.add((60.0, 1.0, 2.0, 3.0, 4.0))  # which no page has
    heard = []
    document = Document()
    document.add_root(charts.layout)
    document.on_change(lambda event: heard.append(event.setter))
    charts.restore("a page")
    assert set(heard) == {"a page"}
    assert charts._lines.data["time"] == [float(index) for index in range(10, 60)]
    assert all(map(math.isnan, charts._lines.data["peak"]))
    assert charts._marks["epoch"].data == {"time": [0.2], "text": ["epoch 1"]}
    charts.flush()
    assert len(parts) == 2
    charts.restore("a page")
    assert charts._lines.data["time"] == [float(index) for index in range(11, 61)]


def test_thinned_lines_are_sent_once(sent: tuple[Any, list[Any]]) -> None:
    charts, parts = sent
    record = recorded(3)
    charts.add((0.1, 1.0, 2.0, 3.0, 4.0))
    charts.replace(record.lines)
    charts.flush()
    assert parts == []
    assert len(charts._lines.data["time"]) == 3


def test_record_of_a_fit_begins_with_the_fit() -> None:
    sampler = Sampler()
    sampler.record("train", moment=1.0, loss=9.0)
    sampler.mark("epoch", "of the fit before", 1.0)
    record = RunRecord(sampler, began=2.0)
    [(row, _)] = record.take(3.0)
    assert math.isnan(row[1])
    assert record.new_marks() == []


def test_record_has_a_row_for_each_sample_with_what_was_known_then() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0)
    for moment in (1.0, 2.0, 3.0):
        sampler.record("memory", moment=moment, in_use=moment, peak=9 - moment, limit=10.0)
        sampler.record("train", moment=moment + 0.5, loss=10 * moment)
    nan = math.nan
    rows = [row for row, _ in record.take()]
    np.testing.assert_equal(
        rows, [(1.0, nan, nan, 1.0, 8.0), (2.0, 10.0, nan, 2.0, 7.0), (3.0, 20.0, nan, 3.0, 6.0)]
    )
    assert record.take() == []
    np.testing.assert_equal(record.take(4.0)[0][0], (4.0, 30.0, nan, 3.0, 6.0))
    assert (record.peak, record.limit) == (8.0, 10.0)


def test_record_without_memory_has_a_row_for_each_pace() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0)
    for moment in (1.0, 2.0):
        sampler.record("train", moment=moment, loss=moment)
        sampler.record("speed", moment=moment, steps_per_second=5.0)
    assert [row[:3] for row, _ in record.take()] == [(1.0, 1.0, 5.0), (2.0, 2.0, 5.0)]


def test_record_tells_new_validation_points_however_many_there_were() -> None:
    sampler = Sampler()
    record = RunRecord(sampler, began=0.0)
    for index in range(300):
        sampler.record("validation", moment=float(index), loss=1.0)
        record.take()
        assert record.new_validation == [(float(index), 1.0)]
    assert len(record.validation) == 200


def test_fit_leaves_a_picture_and_a_table_that_need_no_kernel(notebook: dict[str, Any]) -> None:
    table, picture = shown(notebook["fit"])
    assert ElementTree.fromstring(picture.data["image/svg+xml"]).tag.endswith("svg")
    assert "Fit finished on hpu:0 (simulated GAUDI2)" in table.data["text/html"]
    assert "Fit finished on hpu:0 (simulated GAUDI2)" in table.data["text/plain"]
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
    assert "Fit failed on hpu:0 (simulated GAUDI2) in epoch 2 of 20, batch 6 of 40" in html
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
    torch.zeros(1, device="hpu")
    assert "InUse" in run("%hpu_panel").out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%hpu_panel --interval 0", "every 0.02 to 60 seconds, not every 0"),
        ("%hpu_panel --interval often", "invalid float value"),
        ("%hpu_panel --history 0.5", "1 to 86400 seconds, not 0.5"),
        ("%hpu_panel --stop", "No panel is live"),
        ("%hpu_panel now", "does not take 'now'"),
        ("%hpu_panel --colour", "no option '--colour'"),
    ],
)
def test_wrong_panel_options_get_one_sentence(
    run: Callable[[str], Any], line: str, sentence: str
) -> None:
    cell = run(line)
    assert type(cell.error).__name__ == "UsageError"
    assert sentence in str(cell.error)
