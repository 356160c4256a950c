"""Test metrics logged by a fit: charts, values, and the number of values that are read."""

import math
import re
import threading
from xml.etree import ElementTree

import pytest
from logged_values import log
from small_fit import TRAINER, layout

from hpu_magic.fits.head import head_of
from hpu_magic.lightning.fit import monitor
from hpu_magic.panels.metric_chart import epoch_labels, styles
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.runtime.training.curves import MOST_CHARTS, MOST_FOLLOWED, Curves
from hpu_magic.runtime.training.logged_values import FIRST_STEPS
from hpu_magic.runtime.training.metric_names import goal_of, metric_of
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, sampler

SETUP = f"""{TRAINER}
class Model(Layer):
    def __init__(self, log_training=None, log_validation=None, pause=0.03):
        super().__init__(4)
        self.pause, self.batches = pause, 0
        self.log_training, self.log_validation = log_training, log_validation
    def training_step(self, batch, index):
        self.batches += 1
        time.sleep(self.pause)
        loss = super().training_step(batch, index) + 1 / self.batches
        if self.log_training is not None: self.log_training(self, loss.detach())
        return loss
    def validation_step(self, batch, index):
        self.log_validation(self, torch.tensor(1.0 / max(1, self.batches)))
data = loader(40, 4, 4)
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self): return iter(torch.randn(7, 4, 4).unbind())
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def fit(succeeds, monkeypatch):
    """Fit a model; return the result, the progress and the printed text."""
    from hpu_magic.fits import session

    seen: list[FitProgress] = []

    class Progress(FitProgress):
        def __init__(self):
            super().__init__()
            seen.append(self)

    monkeypatch.setattr(session, "FitProgress", Progress)
    succeeds(SETUP)

    def fit_model(model, data="data", **options):
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        succeeds(f"model, trainer = {model}, make_trainer({arguments}); chosen = {data}")
        cell = succeeds("result = %hpu_fit --interval 0.02 trainer model chosen")
        return succeeds("result").result, seen[-1], cell.out

    return fit_model


def texts(picture):
    return [node.text or "" for node in layout(picture).iter(f"{SVG}text")]


def titles(picture):
    """Return the words in the metric charts, which include the titles."""
    words = [text for text in texts(picture) if text and not text[0].isdigit()]
    return [text.partition(",")[0] for text in words[: words.index("steps per second")]]


def test_progress_bar_metrics_have_a_chart_and_a_value(fit):
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
    drawn = [title for title in titles(result.picture) if title in progress.curves.metrics]
    assert drawn == ["loss", "acc", "lr", "aux"]
    assert "quiet" not in texts(result.picture)
    legends = [text for text in texts(result.picture) if text.startswith("training")]
    assert legends == ["training", "training by epoch", "training"]


def head(progress):
    return head_of(progress, "Model", "cpu").values


def test_epoch_values_equal_lightnings_callback_metrics(fit):
    result, progress, _ = fit(
        "Model(lambda model, loss: model.log('aux', loss, prog_bar=True, on_epoch=True,"
        " on_step=False), lambda model, value: model.log('val_f1', value, prog_bar=True))",
        data="(data, data)",
        max_epochs=3,
    )
    curves = {curve.name: curve for curve in progress.curves}
    assert curves["aux"].last.value == pytest.approx(result.metrics["aux"])
    aux = curves["aux"]
    assert (aux.every, aux.last.step, aux.last.epoch) == ("epoch", 30, 2)
    assert curves["val_f1"].last.value == pytest.approx(1 / 30)
    # The first of three values is the highest.
    assert f"val_f1, best {1 / 10:.4g} in epoch 1" in texts(result.picture)


def test_loss_zeroed_in_place_later_keeps_its_returned_value(fit, run):
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
    assert {curve.name: curve.last.value for curve in progress.curves} == {"loss": 4.0}


def test_metrics_of_several_loaders_and_torchmetrics_share_a_chart(fit, run):
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
    curves = {curve.name: curve for curve in progress.curves}
    assert progress.curves.drawn == ["loss", "acc", "late"]
    assert {each.name: each.every for each in progress.curves.of("acc")} == {
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


def test_returned_loss_that_is_also_logged_has_one_curve(fit):
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_loss', loss, prog_bar=True))")
    [only] = progress.curves
    assert (only.name, only.returned) == ("train_loss", True)
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_loss', -loss, prog_bar=True))")
    assert [each.name for each in progress.curves.of("loss")] == ["loss", "train_loss"]


def test_accumulated_loss_that_is_also_logged_has_one_curve(fit):
    _, progress, _ = fit(
        "Model(lambda model, loss: model.log('train_loss', loss, prog_bar=True))",
        accumulate_grad_batches=3,
    )
    assert [curve.name for curve in progress.curves] == ["train_loss"]


@pytest.mark.parametrize("where", ["training", "validation"])
def test_result_names_a_nan_metric_and_its_step(fit, where):
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
    # The metric has no chart, so the first chart shows the mark.
    assert f"quiet NaN, step {step}" in texts(result.picture)


def test_infinite_metric_is_marked_in_its_own_chart(fit):
    result, _, _ = fit(
        "Model(lambda model, loss: model.log('acc', 1.0 if model.batches < 9 else float('-inf'),"
        " prog_bar=True), pause=0.05)"
    )
    root = layout(result.picture)
    places = {node.text: float(node.get("y")) for node in root.iter(f"{SVG}text")}
    title = next(text for text in places if text and text.startswith("acc"))
    assert places[title] < places["acc -inf, step 9"] < places["steps per second"]


def test_metrics_are_read_once_per_report_in_one_transfer(fit, succeeds, torch, monkeypatch):
    reads = []
    to_host = torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda self, *a, **k: (reads.append(self.shape), to_host(self))[1]
    )
    # On a slow machine, the callback would read every step.
    monkeypatch.setattr(monitor, "_SLOW", 0)
    log = " or ".join(f"model.log('m{n}', loss * {n})" for n in range(8))
    succeeds("import hpu_magic")
    succeeds(
        f"many = Model(lambda model, loss: {log}, pause=0); result = hpu_magic.fit("
        "make_trainer(max_epochs=60), many, data, interval=0.5)"
    )
    result = succeeds("result").result
    # A read of a batch contains the loss and 8 metrics. The first batches are all read, then one
    # batch per report.
    ours = [shape for shape in reads if len(shape) == 1 and shape[0] >= 9]
    assert result.steps == 600
    assert 1 <= len(ours) <= math.ceil(result.seconds / 0.5) + 1
    assert sum(shape[0] for shape in ours) <= 9 * FIRST_STEPS + 10 * len(ours)


def test_number_of_charts_and_followed_metrics_is_limited(fit):
    log = " or ".join(f"model.log('m{n}x', 1.0 * {n}, prog_bar=True)" for n in range(80))
    result, progress, _ = fit(f"Model(lambda model, loss: {log})", limit_train_batches=4)
    curves = progress.curves
    assert len(curves.drawn) == MOST_CHARTS
    assert curves.drawn[0] == "loss"
    assert len(list(curves)) == MOST_FOLLOWED
    values = head(progress)
    assert values[0].startswith("loss ")
    assert values[-2:] == ("54 more", "17 more are not tracked")
    assert len(result.picture) < 50_000


def test_chart_added_later_draws_the_complete_history():
    source, progress = Sampler(), FitProgress(began=0.0)
    curves = progress.curves
    quiet = curves.follow("quiet", "quiet", "training", "step", on_bar=False)
    record = RunRecord(source, 0.0, progress=progress)
    for index in range(4):
        log(source, quiet, float(index), 1.0, index)
        record.news(float(index))
    assert "quiet" not in texts(draw(record))
    assert curves.shown == []
    curves.add_chart("quiet")
    curves.add_chart("unknown")
    assert curves.drawn == ["quiet"]
    assert "quiet" in texts(draw(record))
    assert [each.name for each in curves.shown] == ["quiet"]
    assert record.curves[quiet].data()["step"] == [0.0, 1.0, 2.0, 3.0]


def model_ids(message):
    """Return the ids of all models that a message describes completely."""
    if isinstance(message, list):
        return [name for item in message for name in model_ids(item)]
    if not isinstance(message, dict):
        return []
    own = [message["id"]] if message.get("type") == "object" and "id" in message else []
    return own + [name for item in message.values() for name in model_ids(item)]


def test_each_bokeh_model_is_sent_once(monkeypatch):
    from hpu_magic.panels.charts import Charts
    from hpu_magic.panels.document import DocumentWidget

    source, progress = Sampler(), FitProgress(began=0.0)
    record = RunRecord(source, 0.0, progress=progress)
    charts = Charts(on_add=progress.curves.add_chart)
    widget = DocumentWidget(charts.layout, charts.restore, threading.RLock(), charts.choose)
    charts.connect(widget.change)
    messages = []
    monkeypatch.setattr(widget, "send", messages.append)

    def draw_step(curve, index):
        log(source, curve, float(index), 0.5, index)
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
        draw_step(curve, 2 * index)
        draw_step(curve, 2 * index + 1)
    widget._answer(widget, {"chosen": "quiet"}, [])
    draw_step(curve, 10)
    described = model_ids(messages)
    assert len(described) > 200
    # A second description would replace the drawn model and its rows.
    assert len(described) == len(set(described))
    assert [chart.metric for chart in charts._metrics] == ["loss", "acc", "quiet"]
    widget.close()


def test_chart_can_be_added_from_another_thread():
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
        log(source, curve, float(index), 0.5, index)
    charts.draw(record, record.news())
    before = charts.layout.children
    assert charts._add.select.visible
    assert charts._add.select.options == [("", "1 of 2 drawn"), ("lr", "lr")]
    other = threading.Thread(target=charts.choose, args=("lr",))
    other.start()
    other.join()
    charts.draw(record, record.news())
    assert [each for each in charts.layout.children if each not in before] == [
        charts._metrics[1].plot
    ]
    assert charts.layout.children[-2:] == before[-2:]
    assert charts._metrics[1]._sources[made[2]].data["step"] == [2.0, 5.0]
    legends = [[item.label["value"] for item in metric._legend.items] for metric in charts._metrics]
    assert legends == [["training", "validation"], []]
    assert not charts._add.select.visible


def test_early_stopping_defines_the_goal_of_a_metric(fit, run):
    run("from lightning.pytorch.callbacks import EarlyStopping")
    run("stopping = EarlyStopping('train_oddity', mode='max', patience=100)")
    run("make_trainer_ = make_trainer")
    run("make_trainer = lambda **options: make_trainer_(callbacks=[stopping], **options)")
    _, progress, _ = fit("Model(lambda model, loss: model.log('train_oddity', -loss))")
    [odd] = progress.curves.of("oddity")
    assert odd.goal == "max"
    assert goal_of("train_oddity") is None


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        *(
            (each, "min")
            for each in ("loss", "val_loss", "map_loss", "RMSE", "word_error", "val/mae")
        ),
        *(
            (item, "max")
            for item in ("acc", "valAcc", "IoU", "mAP", "val_mAP50", "F1Score", "top5", "r2")
        ),
        *((one, None) for one in ("lr", "grad_norm", "top", "epoch", "r", "temperature")),
    ],
)
def test_goal_follows_from_the_metrics_name(name, goal):
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
def test_stage_prefixes_and_suffixes_are_removed_from_metric_names(name, stage, metric):
    assert metric_of(name, stage) == metric


def test_curves_of_one_chart_have_different_styles():
    curves = Curves()
    made = [
        curves.follow(f"{name}{every}", "acc", stage, every)
        for stage, names in (("training", "ab"), ("validation", "cd"))
        for name in names
        for every in ("step", "epoch")
    ]
    looks = [(style.color, style.dashes, style.dots) for style in styles(curves.of("acc"))]
    assert len(made) == 8
    assert len(set(looks)) == len(looks) == 6


def test_epoch_labels_do_not_overlap():
    labels = epoch_labels([0.0, 30.0, 40.0, 90.0, 100.0, 130.0], [1, 2, 3, 4, 5, 6])
    assert labels == ["", "epoch 1", "", "3", "", "5"]


def test_loader_without_length_has_no_total_or_share(fit, own_card):
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


def test_max_time_and_max_steps_determine_the_remaining_time(fit, own_card):
    result, progress, out = fit("Model()", data="Stream()", max_epochs=-1, max_time={"seconds": 2})
    assert progress.deadline - progress.training_began == pytest.approx(2, abs=1)
    assert progress.share == 1
    assert 1.5 < result.seconds < 60
    assert "Fit finished" in out
    _, progress, out = fit("Model()", data="Stream()", max_epochs=-1, max_steps=10)
    assert (progress.planned_steps, progress.share) == (10, 1)
    assert f"Fit finished on {own_card}: 1 epoch and 3 batches in " in out
    half = FitProgress(training_began=-1.0, ended=None)
    half.deadline = half.training_began + 2 * (half.began - half.training_began)
    assert half.share == pytest.approx(0.5, abs=0.01)
    assert half.remaining == pytest.approx(half.began - half.training_began, rel=0.05)


def test_picture_has_an_accessible_description(fit):
    result, progress, _ = fit(
        "Model(None, lambda model, value: model.log('val_acc', value, prog_bar=True))",
        data="(data, data)",
    )
    root = ElementTree.fromstring(result.picture)
    assert root.get("role") == "img"
    assert "max-width:100%" in root.get("style")
    label = root.get("aria-label")
    assert root.find(f"{SVG}title").text == "Curves of Model"
    assert label == f"Curves of Model. {root.find(f'{SVG}desc').text}"
    assert result.bundles()[1]["text/plain"] == label
    loss = progress.curves.first
    assert f"Chart of loss: last loss {loss.last.value:.4g}; best of loss " in label
    assert "Chart of val_acc" not in label
    assert "Chart of acc: last val_acc 0.05; best of val_acc 0.1 at step 10." in label
    assert re.search(r"at most \d+(\.\d+)? (K|M|)i?B, (under )?0\.\d+ % of 96 GiB\.", label), label


def test_metrics_of_the_previous_fit_are_discarded(fit):
    fit("Model(lambda model, loss: model.log('acc', loss, prog_bar=True))")
    _, progress, _ = fit("Model(lambda model, loss: model.log('acc', loss, prog_bar=True))")
    assert not [name for name in sampler()._series if name.startswith("logged")]
    assert progress.curves.drawn == ["loss", "acc"]
