"""Test contents of a fit's picture: curves, best values, epochs, memory."""

import math
import re

import pytest
from logged_values import log
from small_fit import layout

from hpu_magic import units
from hpu_magic.panels import palette
from hpu_magic.panels.line_charts import MEMORY, memory_ticks, memory_title
from hpu_magic.panels.picture import draw
from hpu_magic.panels.picture_parts import NARROW, WIDE, thinned
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.trace import Trace
from hpu_magic.runtime.training.pace import PaceSeries
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER = 5.6  # width of a narrow character in pixels
STOPS = """
from small_fit import monitor_of
class Stopped(Model):
    def on_train_batch_end(self, *arguments):
        if self.global_step == 30:
            monitor_of(self.trainer).stop()
"""
FITS = {
    "finished": "model, trainer = Model(), make_trainer(max_epochs=3)",
    "failed": "model, trainer = Model(fail_at=41), make_trainer(max_epochs=9)",
    "stopped": f"{STOPS}\nmodel, trainer = Stopped(), make_trainer(max_epochs=9)",
}


def test_thinned_curve_keeps_its_ends_and_its_maximum():
    points = [(float(t), math.sin(t) * 9 + (t == 700)) for t in range(1001)]
    few = thinned([(-1.0, 0.0), *points, (1001.0, 0.0)])
    assert (few[0], few[-1]) == ((-1.0, 0.0), (1001.0, 0.0))
    assert max(points, key=lambda point: point[1]) in few
    assert few == sorted(few)
    assert len(few) <= 242


class Picture:
    """The texts, lines and rings in a picture's layout, with their positions."""

    def __init__(self, picture, name="wide"):
        root = layout(picture, name)
        self.texts = [
            (node.text or "", float(node.get("x", 0)), float(node.get("y", 0)), node)
            for node in root.iter(f"{SVG}text")
        ]
        self.paths = [
            [tuple(map(float, point.split())) for point in re.split("[ML]", node.get("d", ""))[1:]]
            for node in root.iter(f"{SVG}path")
        ]
        self.rings = [
            (float(node.get("cx", 0)), float(node.get("cy", 0)))
            for node in root.iter(f"{SVG}circle")
            if node.get("fill") == "none"
        ]

    @property
    def words(self):
        return [words for words, *_ in self.texts]


@pytest.mark.parametrize("outcome", FITS)
def test_picture_of_a_short_fit_draws_all_steps_and_marks_the_best(fits, outcome):
    fits(f"{FITS[outcome]}\nsome = loader(256)")
    fits("%hpu_fit -o result trainer model some", fails=outcome == "failed")
    result = fits("result").result
    assert result.outcome == outcome
    shown = Picture(result.picture)
    loss, pace, *_ = shown.paths
    assert len(loss) == result.steps
    assert len(pace) >= 1
    [ring] = shown.rings
    assert ring in loss
    assert ring[1] == max(y for _, y in loss)  # the lowest loss
    [step] = re.findall(r"best seen \S+ at step (\d+)", shown.words[0])
    assert loss.index(ring) == int(step) - 1


@pytest.mark.parametrize(("goal", "sign"), [("min", 1), ("max", -1)])
def test_thinned_trace_keeps_the_best_row(goal, sign):
    trace, streamed = Trace(("time", "value"), 8, goal), []
    values = [math.cos(index) + index / 300 for index in range(1000)]
    for index, value in enumerate(values):
        change = trace.add(float(index), sign * value)
        streamed = [*zip(*trace.data().values(), strict=True)] if change.thinned else streamed
        streamed += [] if change.thinned else change.rows
        rows = [*zip(*trace.data().values(), strict=True)]
        assert len(rows) <= trace.capacity
        assert rows == streamed
        assert trace.best in rows
    trace.end()
    best = min(range(1000), key=values.__getitem__)
    assert trace.best == (float(best), sign * values[best])
    times = trace.data()["time"]
    assert (float(best) in times, times[-1]) == (True, 999.0)
    assert times == sorted(set(times))


def test_mark_of_the_best_value_is_on_the_thinned_curve():
    sampler, progress = Sampler(), FitProgress(began=0.0)
    curve = progress.curves.follow("val_loss", "loss", "validation", "epoch")
    record = RunRecord(sampler, 0.0, progress=progress)
    for epoch in range(5000):
        log(sampler, curve, float(epoch), abs(epoch - 3333) + 1.0, epoch, epoch)
        record.news()
    record.news(5000.0)
    shown = Picture(draw(record))
    assert shown.words[0] == "val_loss, best 1 in epoch 3334"
    assert shown.rings[0] in shown.paths[0]


def test_speed_after_a_pause_is_averaged_over_a_full_interval():
    sampler = Sampler()
    pace = PaceSeries(sampler, interval=0.1)
    for moment, steps, seconds in ((0.1, 10, 0.1), (0.9, 1, 0.0003), (1.0, 9, 0.0997)):
        pace.add(steps, seconds)
        pace.report(moment, 0)
    pace.add(1, 0.0003)
    pace.report(1.1, 0, last=True)
    columns, _ = sampler.read("speed")
    assert columns["time"] == [0.1, 1.0]
    assert columns["steps_per_second"] == pytest.approx([100, 100])
    short = PaceSeries(sampler, interval=0.1)
    short.add(3, 0.03)
    short.report(2.0, 3)
    short.report(2.0, 3, last=True)
    columns, _ = sampler.read("speed", 2)
    assert columns["steps_per_second"] == pytest.approx([100])


def test_best_epoch_is_marked_near_its_label(fits):
    fits("trainer, both = make_trainer(max_epochs=3), (data, data)")
    fits("%hpu_fit -o result trainer model both")
    shown = Picture(fits("result").result.picture)
    title = shown.words[0]
    [epoch] = re.findall(r"best \S+ in epoch (\d)", title)
    names = {"1": "epoch 1", "2": "2", "3": "3"}
    [ring, *_] = shown.rings
    label = next(x for words, x, y, _ in shown.texts if words == names[epoch] and y < 40)
    others = [x for words, x, y, _ in shown.texts if words in names.values() and y < 40]
    assert len(others) == 3
    # The label is at the end of its epoch, right after the validation.
    assert min(x for x in others if x >= ring[0] - 5) == label


def test_late_speed_sample_keeps_the_lines_in_order():
    sampler = Sampler()
    record = RunRecord(sampler, 0.0)
    sampler.record("speed", moment=1.0, steps_per_second=4.0, step=4.0)
    for moment in range(6):
        sampler.record("memory", moment=float(moment), in_use=1.0, peak=2.0, limit=4.0)
    record.news()
    sampler.record("speed", moment=2.0, steps_per_second=5.0, step=8.0)
    record.news(6.0)
    data = record.lines.data()
    assert data["time"] == [0, 1, 2, 3, 4, 5, 6]
    assert data["step"][-1] == 8


def named_curves(*names):
    """Return the record of a fit that logged a metric for several loaders."""
    sampler, progress = Sampler(), FitProgress(began=0.0)
    record = RunRecord(sampler, 0.0, progress=progress)
    for name in names:
        curve = progress.curves.follow(name, "accuracy_of_everything", "validation", "epoch")
        log(sampler, curve, 1.0, 123456.00001, 1)
        log(sampler, curve, 10.0, 123456.00002, 2, 1)
    record.news(10.0)
    return record


@pytest.mark.parametrize("sizes", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_texts_do_not_overlap_or_leave_the_picture(count, sizes):
    names = [f"accuracy_of_everything/dataloader_{index}" for index in range(count)]
    picture = draw(named_curves(*names))
    boxes = []
    for words, x, y, node in Picture(picture, "wide" if sizes is WIDE else "narrow").texts:
        size = float(node.get("font-size", 11))
        width = float(node.get("textLength", CHARACTER * size / 11 * len(words)))
        left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[node.get("text-anchor", "")]
        assert left >= 0, words
        assert left + width <= sizes.width + 1, words
        boxes.append((words, left, left + width, y - size * 0.7, y))
    for index, (words, left, right, top, bottom) in enumerate(boxes):
        for other, its_left, its_right, its_top, its_bottom in boxes[:index]:
            apart = right <= its_left or its_right <= left or bottom <= its_top or its_bottom <= top
            assert apart, f"{words} covers {other}"


def test_text_is_legible_in_a_page_of_700_pixels() -> None:
    picture = draw(named_curves("train_loss", "val_loss"))
    output = 320  # width in pixels next to JupyterLab's file browser
    sizes = [float(node.get("font-size", 0)) for *_, node in Picture(picture, "narrow").texts]
    assert min(sizes) * output / NARROW.width >= 10
    [shown] = re.findall(r"@media \(max-width:(\d+)px\)", picture)
    assert output < int(shown) < palette.WIDTH


@pytest.mark.parametrize(
    ("peak", "limit", "title", "top"),
    [
        (12, 96 * 2**30, "device memory: 12 B peak, under 0.01 % of 96 GiB", "15 B"),
        (12 * 2**20, 96 * 2**30, "device memory: 12 MiB peak, 0.01 % of 96 GiB", "15 MiB"),
        (2.5 * 2**30, 96 * 2**30, "device memory: 2.5 GiB peak, 2.6 % of 96 GiB", "3 GiB"),
        (90 * 2**30, 96 * 2**30, "device memory: 90 GiB peak, 94 % of 96 GiB", "96 GiB"),
        (0, 96 * 2**30, "device memory: 0 B peak, 0 % of 96 GiB", "4 B"),
        (5 * 2**20, math.nan, "device memory: 5 MiB peak", "6 MiB"),
    ],
)
def test_memory_axis_ends_near_the_peak(peak, limit, title, top):
    sampler = Sampler()
    record = RunRecord(sampler, 0.0)
    for moment in (0.0, 1.0):
        sampler.record("memory", moment=moment, in_use=peak / 2, peak=peak, limit=limit)
    record.news(1.0)
    assert memory_title(peak, limit) == title
    shown = Picture(draw(record, ("memory",)))
    assert shown.words[0] == title
    assert {"in use", "peak", "0 B", top} <= set(shown.words)
    assert units.capacity(memory_ticks(peak, limit)[-1]) == top
    height = MEMORY.height - 30
    in_use, highest = shown.paths
    assert highest[0][1] - (18 + height) == pytest.approx(2 * (in_use[0][1] - (18 + height)), abs=1)
    assert peak == 0 or 18 + height - highest[0][1] > height / 2
