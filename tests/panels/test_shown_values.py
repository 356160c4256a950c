"""What a fit's panel shows is what happened: losses, steps, memory, and what is no number."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from small_fit import layout

from hpu_magic.fits.head import head_of
from hpu_magic.panels import palette, terminal
from hpu_magic.panels.picture import draw
from hpu_magic.panels.record import RunRecord
from hpu_magic.panels.terminal import TerminalView
from hpu_magic.runtime.training.curves import Point
from hpu_magic.runtime.training.not_finite import ValueWatch
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.sampler import Sampler, sampler

SETUP = """
import time, torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self, returns=lambda loss, batch: loss, pause=0.0):
        super().__init__()
        self.layer, self.returns, self.pause = torch.nn.Linear(4, 1), returns, pause
        self.batches, self.losses = 0, []
    def training_step(self, batch, index):
        self.batches += 1
        time.sleep(self.pause)
        returned = self.returns(self.layer(batch[0]).square().mean() + self.batches, self.batches)
        loss = returned["loss"] if isinstance(returned, dict) else returned
        self.losses.append(None if loss is None else float(loss))
        return returned
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
class Gan(pl.LightningModule):
    def __init__(self, nan_from=None):
        super().__init__()
        self.automatic_optimization = False
        self.g, self.d = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        self.batches, self.nan_from = 0, nan_from or 10_000
    def training_step(self, batch, index):
        self.batches += 1
        time.sleep(0.05)
        for name, net, optimizer in zip("gd", (self.g, self.d), self.optimizers()):
            loss = net(batch[0]).square().mean()
            broken = name == "d" and self.batches >= self.nan_from
            self.log(f"{name}_loss", loss * float("nan") if broken else loss, prog_bar=True)
            self.log(f"{name}_hidden", loss)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
    def configure_optimizers(self):
        return [torch.optim.SGD(net.parameters(), lr=0.1) for net in (self.g, self.d)]
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 4)), 4)
def make_trainer(**options):
    options = dict(accelerator="hpu", devices=1, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False) | options
    return pl.Trainer(**options)
"""


@pytest.fixture
def fit(run: Callable[[str], Any]) -> Callable[..., Any]:
    """Fit what an expression makes, and return the result, the model and what was printed."""
    assert run(SETUP).error is None

    def fit_model(model: str, **options: Any) -> tuple[Any, Any, str]:
        arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
        assert run(f"model, trainer = {model}, make_trainer({arguments})").error is None
        cell = run("result = %hpu_fit --interval 0.02 trainer model data")
        assert cell.error is None, cell.error
        return run("result").result, run("model").result, cell.out

    return fit_model


@pytest.fixture
def recorded() -> Callable[[str], list[float]]:
    """Values of a series since the test began."""
    cursors = {name: sampler().cursor(name) for name in ("train", "memory")}

    def values(name: str) -> list[float]:
        columns, _ = sampler().read(name, cursors.get(name, 0))
        return next((column for key, column in columns.items() if key != "time"), [])

    return values


def words(picture: str) -> list[str]:
    return [node.text or "" for node in layout(picture).iter() if node.text]


@pytest.mark.parametrize("accumulated", [1, 3, 4])
@pytest.mark.parametrize("returns", ["loss", "{'loss': loss, 'other': 1}"])
def test_the_loss_is_what_training_step_returned(fit, recorded, accumulated, returns):
    result, model, out = fit(
        f"Model(lambda loss, batch: {returns}, pause=0.02)", accumulate_grad_batches=accumulated
    )
    shown = recorded("train")
    assert len(shown) >= 4
    # What Lightning divided and is multiplied again may differ in the last bit.
    assert all(any(one == pytest.approx(loss, rel=1e-6) for loss in model.losses) for one in shown)
    steps = {1: 20, 3: 8, 4: 6}[accumulated]  # the last of an epoch's are fewer
    assert (result.steps, result.batches) == (steps, 20)
    batches = "" if accumulated == 1 else " (20 batches)"
    assert f"{steps}{batches} in " in out
    assert result.steps_per_second == pytest.approx(result.batches_per_second * steps / 20)
    assert ("batches/s" in out) == (accumulated > 1)


def test_batches_without_a_loss_leave_a_gap(fit, recorded):
    _, model, _ = fit("Model(lambda loss, batch: loss if batch % 2 else None, pause=0.02)")
    assert model.losses.count(None) == 10
    assert set(recorded("train")) <= {loss for loss in model.losses if loss is not None}
    assert len(recorded("train")) > 3


@pytest.mark.parametrize(
    ("factor", "accumulated", "told", "place"),
    [
        ("nan", 1, "loss NaN since step 13", "epoch 2, batch 3"),
        ("inf", 1, "loss inf since step 13", "epoch 2, batch 3"),
        ("-inf", 1, "loss -inf since step 13", "epoch 2, batch 3"),
        ("nan", 4, "loss NaN since step 4", "epoch 2, batch 3"),
    ],
)
def test_a_loss_that_is_no_number_is_named_with_its_step(fit, factor, accumulated, told, place):
    result, _, out = fit(
        f"Model(lambda loss, batch: loss * float('{factor}') if batch >= 13 else loss, 0.05)",
        accumulate_grad_batches=accumulated,
    )
    assert result.outcome == "finished"
    assert result.title().endswith(f", but with {told}")
    assert f"{told.removeprefix('loss ')} ({place})" in out
    value, step = told.split()[1], told.split()[-1]
    assert f"loss {value}, step {step}" in words(result.picture)
    [noted] = result.not_finite
    assert (noted.curve, noted.value, noted.step, noted.lasting) == ("loss", value, int(step), True)


def test_a_loss_that_recovers_was_no_number_at_its_step(fit):
    result, _, out = fit("Model(lambda loss, n: loss + float('inf' if n == 7 else 0), 0.05)")
    assert "but with loss inf at step 7" in result.title()
    assert "inf at step 7 (epoch 1, batch 7)" in out


def test_a_short_fit_that_breaks_is_told_too(fit):
    result, _, _ = fit("Model(lambda loss, n: loss * float('nan'))", max_steps=1)
    assert "loss NaN since step 1" in result.title()


def test_values_between_looks_are_not_claimed():
    watch = ValueWatch()
    for index, value in ((1, 1.0), (9, math.nan), (17, math.nan), (25, 0.0)):
        watch.see("loss", value, index=index, step=index, place="epoch 1", moment=0.0)
        if index == 9:
            [noted] = watch.noted
            assert noted.brief == "loss NaN since step 9 at the latest"
            assert noted.full == "NaN since step 9 at the latest (epoch 1, finite at step 1)"
    assert [one.lasting for one in watch.noted] == [False]


def test_what_is_noted_has_a_bound():
    watch = ValueWatch()
    for index in range(1000):
        value = math.nan if index % 2 else 1.0
        watch.see("loss", value, index=index, step=index, place="", moment=0.0)
    assert len(watch.noted) == 5
    # One that comes and goes leaves room for others.
    watch.see("other", math.inf, index=1, step=1, place="", moment=0.0)
    assert [one.curve for one in watch.noted] == ["loss"] * 5 + ["other"]


def test_each_metric_has_a_chart_where_no_loss_is_returned(fit):
    result, _, _ = fit("Gan()")
    titles = [text.partition(",")[0] for text in words(result.picture)]
    assert [one for one in titles if one.endswith(("loss", "hidden"))] == ["g_loss", "d_loss"]
    assert (result.steps, result.batches) == (40, 20)
    # The next fit may log other values.
    assert not [name for name in sampler()._series if name.startswith("logged")]


def test_a_logged_value_that_is_no_number_is_named(fit):
    result, _, _ = fit("Gan(nan_from=7)")
    assert [one.curve for one in result.not_finite] == ["d_loss"]
    assert "d_loss NaN since step 14" in result.title()


def test_a_fit_on_the_cpu_shows_no_device(fit, run, recorded):
    run("x = torch.ones(1 << 20, device='hpu'); torch.hpu.reset_peak_memory_stats()")
    result, _, out = fit("Model(pause=0.01)", accelerator="cpu")
    assert (result.peak, result.limit) == (None, None)
    assert "memory" not in out
    assert not [text for text in words(result.picture) if "memory" in text or "iB" in text]
    assert any(text.startswith("loss, best seen ") for text in words(result.picture))
    assert "steps per second" in words(result.picture)
    said = result.bundles()[1]["text/plain"]
    assert said.startswith("Curves of Model. Over ")
    assert "Device memory" not in said


def test_the_peak_is_never_below_what_is_in_use(fit, run, torch):
    result, _, _ = fit(
        "Model(lambda loss, n: (torch.hpu.reset_peak_memory_stats(), loss)[1], pause=0.01)"
    )
    columns, _ = sampler().read("memory")
    assert result.peak >= max(columns["in_use"][-5:])


def test_a_record_keeps_its_peak_when_another_measurement_resets_the_devices(run, torch):
    from hpu_magic.runtime.device.peak import Peak

    held = torch.ones(1 << 20, device="hpu")
    source, peak = Sampler(), Peak()
    peak.open(reset=False)
    record = RunRecord(source, 0.0, peak=peak)
    source.sample()
    before = record.news().lines.rows[-1][4]
    big = torch.ones(4 << 20, device="hpu")
    del big
    # Its own peak takes the device's, which nobody has sampled meanwhile.
    run("%%hpu_memory\ntorch.ones(1, device='hpu')")
    source.sample()
    after = record.news().lines.rows[-1][4]
    assert after >= before + (16 << 20) - 4096
    assert peak.close() == after
    assert held.numel()


def test_the_header_and_the_terminal_name_what_broke(capsys, monkeypatch):
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


def test_a_picture_without_anything_finite_is_still_a_picture():
    source, progress = Sampler(), FitProgress()
    record = RunRecord(source, 0.0, progress=progress)
    loss = progress.curves.follow("loss", "loss", "training", "step", returned=True)
    for index in range(3):
        moment = float(index)
        loss.last = Point(moment, math.nan, index, 0)
        source.record("train", moment=moment, value=math.nan, step=moment, epoch=0.0)
        progress.watch.see("loss", math.nan, index=index, step=index, place="", moment=moment)
        record.news(moment)
    picture = draw(record)
    assert "loss NaN, step 0" in words(picture)
    assert 'nan"' not in picture.lower()


def test_the_plan_counts_steps_and_batches():
    progress = FitProgress(training_began=0.0, planned_batches=100, planned_steps=10)
    progress.trained, progress.steps = 20, 5
    assert progress.share == 0.5
    assert FitProgress().share is None
    assert FitProgress().remaining is None


def test_no_two_curves_are_told_apart_by_color_alone():
    looks = [(dashes, every) for (_, every), (_, dashes) in palette.CURVES.items()]
    looks += [
        (dashes, every) for _, dashes in palette.FURTHER_CURVES for every in ("step", "epoch")
    ]
    assert len(set(looks)) == len(looks)


def test_values_far_from_zero_that_differ_little_have_labels():
    from hpu_magic.panels.picture import _ticks

    ticks, label = _ticks([1795386374.6488366, 1795386374.8178616])
    assert [label(tick) for tick in ticks][:2] == ["1795386374.60", "1795386374.65"]
