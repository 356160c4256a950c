"""Test values in a fit's panel: losses, steps, memory and nonfinite values."""

import math
import sys

import pytest
from logged_values import log
from small_fit import TRAINER, layout

from hpu_magic.fits.head import head_of
from hpu_magic.panels import palette, terminal
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.terminal import TerminalView
from hpu_magic.runtime.training.not_finite import ValueWatch
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, sampler

SETUP = f"""{TRAINER}
class Model(Layer):
    def __init__(self, returns=lambda loss, batch: loss, pause=0.0):
        super().__init__(4)
        self.returns, self.pause = returns, pause
        self.batches, self.losses = 0, []
    def training_step(self, batch, index):
        self.batches += 1
        time.sleep(self.pause)
        loss = super().training_step(batch, index) + self.batches
        returned = self.returns(loss, self.batches)
        loss = returned["loss"] if isinstance(returned, dict) else returned
        self.losses.append(None if loss is None else float(loss))
        return returned
class Gan(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.g, self.d = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        time.sleep(0.05)
        for name, net, optimizer in zip("gd", (self.g, self.d), self.optimizers()):
            loss = net(batch[0]).square().mean()
            self.log(name + "_loss", loss, prog_bar=True)
            self.log(name + "_hidden", loss)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
    def configure_optimizers(self):
        return [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.g, self.d)]
data = loader(40, 4, 4)
"""


@pytest.fixture
def fit(succeeds):
    """Fit a model; return the result, the model and the printed text."""
    succeeds(SETUP)

    def fit_model(model, **options):
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        succeeds(f"model, trainer = {model}, make_trainer({arguments})")
        cell = succeeds("result = %hpu_fit --interval 0.02 trainer model data")
        return *succeeds("result, model").result, cell.out

    return fit_model


@pytest.fixture
def recorded():
    """Values of a series since the test began."""
    cursors = {name: sampler().cursor(name) for name in ("train", "memory")}

    def values(name):
        columns, _ = sampler().read(name, cursors.get(name, 0))
        return next((column for key, column in columns.items() if key != "time"), [])

    return values


def words(picture):
    return [node.text or "" for node in layout(picture).iter() if node.text]


@pytest.mark.parametrize("accumulated", [1, 3, 4])
@pytest.mark.parametrize("returns", ["loss", "{'loss': loss, 'other': 1}"])
def test_shown_loss_is_the_returned_loss(fit, recorded, accumulated, returns):
    result, model, out = fit(
        f"Model(lambda loss, batch: {returns}, pause=0.02)", accumulate_grad_batches=accumulated
    )
    shown = recorded("train")
    assert len(shown) >= 4
    # Lightning's division and its inverse may change the last bit.
    assert all(any(value == pytest.approx(loss) for loss in model.losses) for value in shown)
    steps = {1: 20, 3: 8, 4: 6}[accumulated]  # the last step of an epoch has fewer batches
    assert (result.steps, result.batches) == (steps, 20)
    batches = "" if accumulated == 1 else " (20 batches)"
    assert f"{steps}{batches} in " in out
    assert result.steps_per_second == pytest.approx(result.batches_per_second * steps / 20)
    assert ("batches/s" in out) == (accumulated > 1)


def test_batches_without_a_loss_are_not_recorded(fit, recorded):
    _, model, _ = fit("Model(lambda loss, batch: loss if batch % 2 else None, pause=0.02)")
    assert model.losses.count(None) == 10
    assert set(recorded("train")) <= {loss for loss in model.losses if loss is not None}
    assert len(recorded("train")) > 3


@pytest.mark.parametrize(
    ("factor", "accumulated", "value", "step"),
    [("nan", 1, "NaN", 13), ("inf", 1, "inf", 13), ("-inf", 1, "-inf", 13), ("nan", 4, "NaN", 4)],
)
def test_nonfinite_loss_is_reported_with_its_step(fit, factor, accumulated, value, step):
    result, _, out = fit(
        f"Model(lambda loss, batch: loss * float('{factor}') if batch >= 13 else loss, 0.05)",
        accumulate_grad_batches=accumulated,
    )
    assert result.outcome == "finished"
    assert result.title().endswith(f", but with loss {value} since step {step}")
    assert f"{value} since step {step} (epoch 2, batch 3)" in out
    assert f"loss {value}, step {step}" in words(result.picture)
    [noted] = result.not_finite
    assert (noted.curve, noted.value, noted.step, noted.lasting) == ("loss", value, step, True)


def test_loss_that_recovers_is_reported_for_one_step(fit):
    result, _, out = fit("Model(lambda loss, n: loss + float('inf' if n == 7 else 0), 0.05)")
    assert "but with loss inf at step 7" in result.title()
    assert "inf at step 7 (epoch 1, batch 7)" in out


def test_nan_loss_in_a_fit_of_one_step_is_reported(fit):
    result, _, _ = fit("Model(lambda loss, n: loss * float('nan'))", max_steps=1)
    assert "loss NaN since step 1" in result.title()


def test_first_nonfinite_step_between_two_reads_is_an_upper_bound():
    watch = ValueWatch()
    for index, value in ((1, 1.0), (9, math.nan), (17, math.nan), (25, 0.0)):
        watch.see("loss", value, index=index, step=index, place="epoch 1", moment=0.0)
        if index == 9:
            [noted] = watch.noted
            assert noted.brief == "loss NaN since step 9 at the latest"
            assert noted.full == "NaN since step 9 at the latest (epoch 1, finite at step 1)"
    assert [each.lasting for each in watch.noted] == [False]


def test_number_of_nonfinite_reports_per_curve_is_limited():
    watch = ValueWatch()
    for index in range(1000):
        value = math.nan if index % 2 else 1.0
        watch.see("loss", value, index=index, step=index, place="", moment=0.0)
    assert len(watch.noted) == 5
    # The limit applies to each curve.
    watch.see("other", math.inf, index=1, step=1, place="", moment=0.0)
    assert [each.curve for each in watch.noted] == ["loss"] * 5 + ["other"]


def test_fit_without_a_returned_loss_has_a_chart_per_metric(fit):
    result, _, _ = fit("Gan()")
    titles = [text.partition(",")[0] for text in words(result.picture)]
    assert [title for title in titles if title.endswith(("loss", "hidden"))] == ["g_loss", "d_loss"]
    assert (result.steps, result.batches) == (40, 20)


def test_fit_on_the_cpu_shows_no_device_memory(fit, run, recorded):
    run("x = torch.ones(1 << 20, device='hpu'); torch.hpu.reset_peak_memory_stats()")
    result, _, out = fit("Model(pause=0.01)", accelerator="cpu")
    assert (result.device, result.peak, result.limit) == ("cpu", None, None)
    assert "memory" not in out
    assert not [text for text in words(result.picture) if "memory" in text or "iB" in text]
    assert any(text.startswith("loss, best seen ") for text in words(result.picture))
    assert "steps per second" in words(result.picture)
    description = result.bundles()[1]["text/plain"]
    assert description.startswith("Curves of Model. Over ")
    assert "Device memory" not in description


def test_peak_memory_is_at_least_the_memory_in_use(fit, run, torch):
    result, _, _ = fit(
        "Model(lambda loss, n: (torch.hpu.reset_peak_memory_stats(), loss)[1], pause=0.01)"
    )
    columns, _ = sampler().read("memory")
    assert result.peak >= max(columns["in_use"][-5:])


def test_peak_survives_a_reset_by_another_measurement(run, torch):
    from hpu_magic.runtime.device.peak import Peak

    held = torch.ones(1 << 20, device="hpu")
    source, peak = Sampler(), Peak()
    peak.open(reset=False)
    record = RunRecord(source, 0.0, peak=peak)
    source.sample()
    before = record.news().lines.rows[-1][4]
    big = torch.ones(4 << 20, device="hpu")
    del big
    # The record's peak includes the device's peak, although no sample has read it before the reset.
    run("%%hpu_memory\ntorch.ones(1, device='hpu')")
    source.sample()
    after = record.news().lines.rows[-1][4]
    assert after >= before + (16 << 20) - 4096
    assert peak.close() == after
    assert held.numel()


def test_progress_line_names_a_nan_loss(capsys, monkeypatch):
    progress = FitProgress()
    progress.watch.see("loss", math.nan, index=1, step=1, place="epoch 1, batch 1", moment=0.0)
    head = head_of(progress, "Net", "cpu")
    assert head.not_finite == "loss NaN since step 1"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(terminal, "_SECONDS_BETWEEN_LINES", 0.0)
    TerminalView().draw(head, None, None)
    assert capsys.readouterr().out == (
        "\rStarting Net: before the first batch, loss NaN since step 1, cpu"
    )


def test_picture_without_finite_values_is_drawn():
    source, progress = Sampler(), FitProgress()
    record = RunRecord(source, 0.0, progress=progress)
    loss = progress.curves.follow("loss", "loss", "training", "step", returned=True)
    for index in range(3):
        moment = float(index)
        log(source, loss, moment, math.nan, index)
        progress.watch.see("loss", math.nan, index=index, step=index, place="", moment=moment)
        record.news(moment)
    picture = draw(record)
    assert "loss NaN, step 0" in words(picture)
    assert 'nan"' not in picture.lower()


def test_curve_styles_differ_in_more_than_color():
    looks = [(dashes, every) for (_, every), (_, dashes) in palette.CURVES.items()]
    looks += [
        (dashes, every) for _, dashes in palette.FURTHER_CURVES for every in ("step", "epoch")
    ]
    assert len(set(looks)) == len(looks)


def test_axis_labels_distinguish_large_similar_values():
    from hpu_magic.panels.picture import _ticks

    ticks, label = _ticks([1795386374.6488366, 1795386374.8178616])
    assert [label(tick) for tick in ticks][:2] == ["1795386374.60", "1795386374.65"]
