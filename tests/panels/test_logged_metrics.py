"""Metrics that a fit logs: which have a chart, what the panel says of them, and what it costs."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from small_fit import layout

from hpu_magic.fits.head import head_of
from hpu_magic.lightning.fit import monitor
from hpu_magic.panels.metric_chart import epoch_labels, styles
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.training.curves import MOST_CHARTS, MOST_FOLLOWED, Curves, Point
from hpu_magic.runtime.training.logged_values import FIRST_STEPS
from hpu_magic.runtime.training.metric_names import goal_of, metric_of
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, sampler

SETUP = """
import time, torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self, log_training=None, log_validation=None, returned=True, pause=0.03):
        super().__init__()
        self.layer, self.returned, self.pause = torch.nn.Linear(4, 1), returned, pause
        self.log_training, self.log_validation = log_training, log_validation
        self.batches, self.losses = 0, []
    def training_step(self, batch, index):
        self.batches += 1
        time.sleep(self.pause)
        loss = self.layer(batch[0]).square().mean() + 1 / self.batches
        self.losses.append(float(loss))
        if self.log_training is not None: self.log_training(self, loss.detach())
        return loss if self.returned else None
    def validation_step(self, batch, index):
        self.log_validation(self, torch.tensor(1.0 / max(1, self.batches)))
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), 4)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(torch.randn(7, 4, 4).unbind())
def make_trainer(**options):
    options = dict(accelerator="hpu", devices=1, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False) | options
    return pl.Trainer(**options)
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def fit(run: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Fit what an expression makes; return the result, the progress and what was printed."""
    from hpu_magic.fits import session

    seen: list[FitProgress] = []

    class Progress(FitProgress):
        def __init__(self) -> None:
            super().__init__()
            seen.append(self)

    monkeypatch.setattr(session, "FitProgress", Progress)
    assert run(SETUP).error is None

    def fit_model(model: str, data: str = "data", **options: Any) -> tuple[Any, FitProgress, str]:
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        made = run(f"model, trainer = {model}, make_trainer({arguments}); chosen = {data}")
        assert made.error is None
        cell = run("result = %hpu_fit --interval 0.02 trainer model chosen")
        assert cell.error is None, cell.error
        return run("result").result, seen[-1], cell.out

    return fit_model


def texts(picture: str) -> list[str]:
    return [node.text or "" for node in layout(picture).iter(f"{SVG}text")]


def titles(picture: str) -> list[str]:
    """Return what stands above the charts of metrics."""
    plain = [one for one in texts(picture) if one and not one[0].isdigit()]
    return [one.partition(",")[0] for one in plain[: plain.index("steps per second")]]


def test_what_is_on_the_bar_has_a_chart_and_a_value(fit):
    result, progress, _ = fit(
        "Model(lambda model, loss: model.log_dict({'train_acc': 0.5, 'lr': 1e-4}, prog_bar=True) or"
        " model.log('quiet', 7.0) or"
        " model.log('aux', 3 * loss, prog_bar=True, on_step=True, on_epoch=True),"
        " lambda model, value: model.log('val_acc', value, prog_bar=True))",
        data="(data, data)",
    )
    assert progress.curves.drawn == ["loss", "acc", "lr", "aux"]
    assert progress.curves.addable == ["quiet"]
    shown = {text.rpartition(" ")[0]: float(text.rpartition(" ")[2]) for text in head(progress)}
    assert list(shown) == ["loss", "train_acc", "lr", "aux_step", "val_acc", "aux_epoch"]
    assert shown["train_acc"] == 0.5
    assert shown["val_acc"] == pytest.approx(1 / 20)
    found = [one for one in titles(result.picture) if one in progress.curves.metrics]
    assert found == ["loss", "acc", "lr", "aux"]
    assert "quiet" not in texts(result.picture)
    legends = [text for text in texts(result.picture) if text.startswith("training")]
    assert legends == ["training", "training by epoch", "training"]


def head(progress: FitProgress) -> tuple[str, ...]:
    return head_of(progress, "Model", "cpu").values


def test_values_of_epochs_are_those_that_lightning_tells(fit):
    result, progress, _ = fit(
        "Model(lambda model, loss: model.log('aux', loss, prog_bar=True, on_epoch=True,"
        " on_step=False), lambda model, value: model.log('val_f1', value, prog_bar=True))",
        data="(data, data)",
        max_epochs=3,
    )
    curves = {one.name: one for one in progress.curves}
    assert curves["aux"].last.value == pytest.approx(result.metrics["aux"])
    aux = curves["aux"]
    assert (aux.every, aux.last.step, aux.last.epoch) == ("epoch", 30, 2)
    assert curves["val_f1"].last.value == pytest.approx(1 / 30)
    # The first of three was highest.
    assert f"val_f1, best {1 / 10:.4g} in epoch 1" in texts(result.picture)


def test_a_sum_that_is_zeroed_in_place_keeps_the_value_that_was_returned(fit, run):
    run(
        """
        class Summing(Model):
            def __init__(self):
                super().__init__(pause=0.0)
                self.automatic_optimization = False
                self.register_buffer("running", torch.zeros(()))
            def training_step(self, batch, index):
                return self.running.fill_(index + 1)
            def on_train_epoch_end(self):
                self.running.zero_()
        """
    )
    _, progress, _ = fit("Summing()", max_epochs=1, limit_train_batches=4)
    assert {one.name: one.last.value for one in progress.curves} == {"loss": 4.0}


def test_metrics_of_several_loaders_and_of_torchmetrics_share_charts(fit, run):
    run(
        """
        import torchmetrics
        class Several(Model):
            def __init__(self):
                super().__init__()
                self.mean, self.val_mean = torchmetrics.MeanMetric(), torchmetrics.MeanMetric()
            def training_step(self, batch, index):
                self.mean(torch.tensor(float(self.batches)))
                self.log("train/acc", self.mean, prog_bar=True, on_step=True, on_epoch=True)
                return super().training_step(batch, index)
            def validation_step(self, batch, index, dataloader_idx=0):
                self.val_mean(torch.tensor(0.25 + dataloader_idx))
                self.log("val/acc", self.val_mean, prog_bar=True, on_step=False, on_epoch=True)
                self.log("val/seen", float(index), on_step=True, on_epoch=False)
            def on_train_epoch_end(self):
                self.log("late", float(self.current_epoch), prog_bar=True)
        """
    )
    _, progress, _ = fit("Several()", data="(data, [data, data])", num_sanity_val_steps=0)
    curves = {one.name: one for one in progress.curves}
    assert progress.curves.drawn == ["loss", "acc", "late"]
    assert {one.name: one.every for one in progress.curves.of("acc")} == {
        "train/acc_step": "step",
        "train/acc_epoch": "epoch",
        "val/acc/dataloader_idx_0": "epoch",
        "val/acc/dataloader_idx_1": "epoch",
    }
    assert curves["train/acc_epoch"].last.value == pytest.approx(14.5)  # of 10 to 19
    assert curves["late"].last[1:] == (1.0, 20, 1)
    seen = [name for name in curves if name.startswith("val/seen")]
    assert all(0 <= curves[name].last.value < 10 for name in seen)
    labels = [style.label for style in styles(progress.curves.of("acc"))]
    assert labels[:2] == ["training", "training by epoch"]
    assert len(set(labels)) == 4


def test_the_returned_loss_is_not_drawn_again_where_it_is_logged_too(fit):
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_loss', loss, prog_bar=True))")
    [only] = progress.curves
    assert (only.name, only.returned) == ("train_loss", True)
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_loss', -loss, prog_bar=True))")
    assert [one.name for one in progress.curves.of("loss")] == ["loss", "train_loss"]


def test_accumulated_losses_that_are_logged_too_are_the_same(fit):
    _, progress, _ = fit(
        "Model(lambda model, loss: model.log('train_loss', loss, prog_bar=True))",
        accumulate_grad_batches=3,
    )
    assert [one.name for one in progress.curves] == ["train_loss"]


@pytest.mark.parametrize("where", ["training", "validation"])
def test_any_metric_that_is_no_number_is_named_with_its_step(fit, where):
    broken = "lambda model, value: model.log('quiet', value * float('nan') ** (model.batches > 12))"
    log = f"{broken}, None" if where == "training" else f"None, {broken}"
    result, progress, out = fit(
        f"Model({log}, pause=0.05)", data="data" if where == "training" else "(data, data)"
    )
    places = {"training": (13, "epoch 2, batch 3"), "validation": (20, "after epoch 2, batch 10")}
    step, place = places[where]
    assert result.title().endswith(f"but with quiet NaN since step {step}")
    assert f"NaN since step {step} ({place})" in out
    assert head_of(progress, "Model", "cpu").not_finite == f"quiet NaN since step {step}"
    # It has no chart, so that the first one shows it.
    assert f"quiet NaN, step {step}" in texts(result.picture)


def test_a_metric_with_a_chart_is_marked_there(fit):
    result, _, _ = fit(
        "Model(lambda model, loss: model.log('acc', 1.0 if model.batches < 9 else float('-inf'),"
        " prog_bar=True), pause=0.05)"
    )
    root = layout(result.picture)
    places = {node.text: float(node.get("y")) for node in root.iter(f"{SVG}text")}
    title = next(text for text in places if text and text.startswith("acc"))
    assert places[title] < places["acc -inf, step 9"] < places["steps per second"]


def test_values_are_read_once_a_report_and_from_the_device_once(fit, run, torch, monkeypatch):
    reads = []
    to_host = torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda self, *a, **k: (reads.append(self.shape), to_host(self))[1]
    )
    # However slow this machine is just now: of a slow fit, every step is heard.
    monkeypatch.setattr(monitor, "_SLOW", 0)
    log = " or ".join(f"model.log('m{n}', loss * {n})" for n in range(8))
    run("import hpu_magic")
    cell = run(
        f"many = Model(lambda model, loss: {log}, pause=0); result = hpu_magic.fit("
        "make_trainer(max_epochs=60), many, data, interval=0.5)"
    )
    assert cell.error is None
    result = run("result").result
    # Each batch heard has the loss and 8 others. The first ones are all heard, then one for each
    # report, and of another one its loss.
    ours = [shape for shape in reads if len(shape) == 1 and shape[0] >= 9]
    assert result.steps == 600
    assert 1 <= len(ours) <= math.ceil(result.seconds / 0.5) + 1
    assert sum(shape[0] for shape in ours) <= 9 * FIRST_STEPS + 10 * len(ours)


def test_gradual_growth_is_bounded(fit):
    log = " or ".join(f"model.log('m{n}x', 1.0 * {n}, prog_bar=True)" for n in range(80))
    result, progress, _ = fit(f"Model(lambda model, loss: {log})", limit_train_batches=4)
    curves = progress.curves
    assert len(curves.drawn) == MOST_CHARTS
    assert curves.drawn[0] == "loss"
    assert len(list(curves)) == MOST_FOLLOWED
    values = head(progress)
    assert values[0].startswith("loss ")
    assert values[-2:] == ("54 more", "17 further ones are not followed")
    assert len(result.picture) < 50_000


def test_what_is_asked_for_gets_its_whole_history():
    source, progress = Sampler(), FitProgress(began=0.0)
    curves = progress.curves
    quiet = curves.follow("quiet", "quiet", "training", "step", on_bar=False)
    record = RunRecord(source, 0.0, progress=progress)
    for index in range(4):
        quiet.last = Point(float(index), 1.0, index, 0)
        source.record(quiet.series, moment=float(index), value=1.0, step=float(index), epoch=0.0)
        record.news(float(index))
    assert "quiet" not in texts(draw(record))
    assert curves.shown == []
    curves.add_chart("quiet")
    curves.add_chart("unheard of")
    assert curves.drawn == ["quiet"]
    assert "quiet" in texts(draw(record))
    assert [one.name for one in curves.shown] == ["quiet"]
    assert record.curves[quiet].data()["step"] == [0.0, 1.0, 2.0, 3.0]


def defined(told: Any) -> list[str]:
    """Return the ids of all models that a message describes, not only names."""
    if isinstance(told, list):
        return [one for each in told for one in defined(each)]
    if not isinstance(told, dict):
        return []
    here = [told["id"]] if told.get("type") == "object" and "id" in told else []
    return here + [one for each in told.values() for one in defined(each)]


def test_pages_are_told_of_each_model_once(monkeypatch):
    from hpu_magic.panels.charts import Charts
    from hpu_magic.panels.document import DocumentWidget

    source, progress = Sampler(), FitProgress(began=0.0)
    record = RunRecord(source, 0.0, progress=progress)
    charts = Charts(on_add=progress.curves.add_chart)
    widget = DocumentWidget(charts.layout, charts.restore, threading.RLock(), charts.choose)
    charts.connect(widget.change)
    told: list[Any] = []
    monkeypatch.setattr(widget, "send", told.append)

    def log(curve: Any, index: int) -> None:
        curve.last = Point(float(index), 0.5, index, 0)
        source.record(curve.series, moment=float(index), value=0.5, step=float(index), epoch=0.0)
        source.record("speed", moment=float(index), steps_per_second=1.0, step=float(index))
        charts.draw(record, record.news())
        charts.flush()

    widget._answer(widget, {"wanted": "document", "request": 1}, [])
    for index, (name, stage, every, on_bar) in enumerate(
        [
            ("loss", "training", "step", True),
            ("val_loss", "validation", "epoch", True),
            ("acc", "training", "step", True),
            ("val_acc", "validation", "epoch", True),
            ("quiet", "training", "step", False),
        ]
    ):
        curve = progress.curves.follow(name, metric_of(name, stage), stage, every, on_bar=on_bar)
        log(curve, 2 * index)
        log(curve, 2 * index + 1)
    widget._answer(widget, {"chosen": "quiet"}, [])
    log(curve, 10)
    described = [one for message in told for one in defined(message)]
    assert len(described) > 200
    # A second description would take the place of the model that is drawn, with its rows.
    assert len(described) == len(set(described))
    assert [one.metric for one in charts._metrics] == ["loss", "acc", "quiet"]
    widget.close()


def test_charts_draw_what_is_asked_for_from_another_thread():
    from hpu_magic.panels.charts import Charts

    source, progress = Sampler(), FitProgress(began=0.0)
    record = RunRecord(source, 0.0, progress=progress)
    charts = Charts(on_add=progress.curves.add_chart)
    parts: list[str] = []
    charts.connect(parts.append)
    made = [
        progress.curves.follow("acc", "acc", "training", "step"),
        progress.curves.follow("val_acc", "acc", "validation", "epoch"),
        progress.curves.follow("lr", "lr", "training", "step", on_bar=False),
    ]
    for index, curve in enumerate(made * 2):
        curve.last = Point(float(index), 0.5, index, 0)
        source.record(curve.series, moment=float(index), value=0.5, step=float(index), epoch=0.0)
    charts.draw(record, record.news())
    before = charts.layout.children
    assert charts._add.select.visible
    assert charts._add.select.options == [("", "1 of 2 drawn"), ("lr", "lr")]
    other = threading.Thread(target=charts.choose, args=("lr",))
    other.start()
    other.join()
    charts.draw(record, record.news())
    assert [one for one in charts.layout.children if one not in before] == [charts._metrics[1].plot]
    assert charts.layout.children[-2:] == before[-2:]
    assert charts._metrics[1]._sources[made[2]].data["step"] == [2.0, 5.0]
    legends = [[item.label["value"] for item in one._legend.items] for one in charts._metrics]
    assert legends == [["training", "validation"], []]
    assert not charts._add.select.visible


def test_callbacks_say_what_is_best(fit, run):
    run("from lightning.pytorch.callbacks import EarlyStopping")
    run("stopping = EarlyStopping('train_oddity', mode='max', patience=100)")
    assert run("make_trainer_ = make_trainer").error is None
    run("make_trainer = lambda **options: make_trainer_(callbacks=[stopping], **options)")
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_oddity', -loss))")
    [odd] = progress.curves.of("oddity")
    assert odd.goal == "max"
    assert goal_of("train_oddity") is None


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        *(
            (one, "min")
            for one in ("loss", "val_loss", "map_loss", "RMSE", "word_error", "val/mae")
        ),
        *(
            (one, "max")
            for one in ("acc", "valAcc", "IoU", "mAP", "val_mAP50", "F1Score", "top5", "r2")
        ),
        *((one, None) for one in ("lr", "grad_norm", "top", "epoch", "r", "temperature")),
    ],
)
def test_the_best_goes_by_the_name(name, goal):
    assert goal_of(name) == goal


@pytest.mark.parametrize(
    ("name", "stage", "metric"),
    [
        ("train_loss", "training", "loss"),
        ("val/loss", "validation", "loss"),
        ("loss_val", "validation", "loss"),
        ("Validation Acc", "validation", "Acc"),
        ("trainer_state", "training", "trainer_state"),
        ("train", "training", "train"),
        ("val_acc", "training", "val_acc"),
        ("valence", "validation", "valence"),
    ],
)
def test_stages_share_a_chart(name, stage, metric):
    assert metric_of(name, stage) == metric


def test_curves_of_one_chart_look_different():
    curves = Curves()
    made = [
        curves.follow(f"{name}{every}", "acc", stage, every)
        for stage, names in (("training", "ab"), ("validation", "cd"))
        for name in names
        for every in ("step", "epoch")
    ]
    looks = [(one.color, one.dashes, one.dots) for one in styles(curves.of("acc"))]
    assert len(made) == 8
    assert len(set(looks)) == len(looks) == 6


def test_epoch_numbers_keep_their_distance():
    labels = epoch_labels([0.0, 30.0, 40.0, 90.0, 100.0, 130.0], [1, 2, 3, 4, 5, 6])
    assert labels == ["", "epoch 1", "", "3", "", "5"]


def test_epochs_of_unknown_length_have_no_end(fit, own_card):
    result, progress, out = fit("Model()", data="Stream()")
    assert f"Fit finished on {own_card}: 2 epochs in " in out
    assert progress.batches is None
    assert (result.trained, progress.share) == ("2 epochs", None)
    running = FitProgress(training_began=0.0)
    assert running.endless
    assert head_of(running, "Model", "cpu").endless_for is not None
    assert not FitProgress(training_began=0.0, planned_steps=7).endless
    shown = texts(result.picture)
    assert shown[shown.index("epoch 1") + 1] == "2"


def test_max_time_and_max_steps_give_the_time_left(fit, own_card):
    result, progress, out = fit("Model()", data="Stream()", max_epochs=-1, max_time={"seconds": 2})
    assert progress.deadline - progress.training_began == pytest.approx(2, abs=0.1)
    assert progress.share == 1
    assert 1.5 < result.seconds < 10
    assert "Fit finished" in out
    _, progress, out = fit("Model()", data="Stream()", max_epochs=-1, max_steps=10)
    assert (progress.planned_steps, progress.share) == (10, 1)
    assert f"Fit finished on {own_card}: 1 epoch and 3 batches in " in out
    half = FitProgress(training_began=-1.0, ended=None)
    half.deadline = half.training_began + 2 * (half.began - half.training_began)
    assert half.share == pytest.approx(0.5, abs=0.01)
    assert half.remaining == pytest.approx(half.began - half.training_began, rel=0.05)


def test_the_picture_says_what_it_shows(fit):
    result, progress, _ = fit(
        "Model(None, lambda model, value: model.log('val_acc', value, prog_bar=True))",
        data="(data, data)",
    )
    root = ElementTree.fromstring(result.picture)
    assert root.get("role") == "img"
    assert "max-width:100%" in root.get("style")
    said = root.get("aria-label")
    assert root.find(f"{SVG}title").text == "Curves of Model"
    assert said == f"Curves of Model. {root.find(f'{SVG}desc').text}"
    assert result.bundles()[1]["text/plain"] == said
    loss = progress.curves.first
    assert f"Chart of loss: last loss {loss.last.value:.4g}; best of loss " in said
    assert "Chart of val_acc" not in said
    assert "Chart of acc: last val_acc 0.05; best of val_acc 0.1 at step 10." in said
    assert re.search(r"at most \d+(\.\d+)? (K|M|)i?B, (under )?0\.\d+ % of 96 GiB\.", said), said


def test_another_fit_has_metrics_of_its_own(fit):
    fit("Model(lambda model, loss: model.log('acc', loss, prog_bar=True))")
    _, progress, _ = fit("Model(lambda model, loss: model.log('acc', loss, prog_bar=True))")
    assert not [name for name in sampler()._series if name.startswith("logged")]
    assert progress.curves.drawn == ["loss", "acc"]
