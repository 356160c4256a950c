"""A fit is told to other processes while it runs, and no longer, however it ends."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from started_process import started

from hpu_magic import sessions

SETUP = """
import torch, lightning.pytorch as pl
class DigitReader(pl.LightningModule):
    def __init__(self, wrong_at=None):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.wrong_at = wrong_at
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        return loss * float("nan") if self.global_step == self.wrong_at else loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
class Calling(pl.Callback):
    "Calls with the step at each batch's beginning."
    def __init__(self, call):
        self.call = call
    def on_train_batch_start(self, trainer, *_):
        self.call(trainer.global_step)
def loader(rows=64):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(rows, 8)), 16)
def make_trainer(call, **options):
    options = dict(accelerator="hpu", devices=1, max_epochs=2, logger=False,
        enable_checkpointing=False, enable_model_summary=False) | options
    return pl.Trainer(callbacks=[Calling(call)], **options)
model, data = DigitReader(), loader()
"""


def seen() -> sessions.Fit | None:
    session = sessions.session(os.getpid())
    return session and session.fit


@pytest.fixture
def fit(run: Any, shell: Any, own_folder: Any) -> Any:
    """Run a fit in a shell that calls at the beginning of each batch; return its cell."""
    assert run(SETUP).error is None

    def run_fit(call: Any, model: str = "model", **options: Any) -> Any:
        shell.user_ns["trainer"] = shell.user_ns["make_trainer"](call, **options)
        return run(f"result = %hpu_fit trainer {model} data")

    return run_fit


def stopping_once(condition: Any) -> Any:
    """Return a call that ends the fit when something has been told."""
    deadline = time.monotonic() + 30

    def call(step: int) -> None:
        if condition():
            assert sessions.stop_fit() is not None
        assert time.monotonic() < deadline, f"{seen()} was told"
        time.sleep(0.02)

    return call


@pytest.mark.parametrize("accelerator", ["hpu", "cpu"])
def test_where_a_fit_stands_is_told_until_it_has_finished(fit: Any, accelerator: str) -> None:
    told: list[sessions.Fit] = []

    def call(step: int) -> None:
        found = seen()
        assert found is not None
        told.append(found)
        time.sleep(0.5 if step in (5, 6, 7, 8) else 0)

    cell = fit(call, max_epochs=3, accelerator=accelerator)
    assert cell.error is None
    assert seen() is None
    first, last = told[0], told[-1]
    assert first.phase in ("starting", "training")
    assert (first.step, first.loss, first.share or 0) == (0, None, 0)
    assert (last.model, last.phase, last.epochs, last.batches) == ("DigitReader", "training", 3, 4)
    assert abs(last.began - time.time()) < 60
    assert 2 <= last.epoch <= 3
    assert 5 <= last.step < 12
    assert last.share == pytest.approx(last.step / 12, abs=1e-3)
    assert last.loss_name == "loss"
    assert min(last.loss, last.rate, last.remaining) > 0
    assert (last.broken, last.stoppable) == ("", False)
    assert len(set(told)) < len(told)  # not every batch is news


def test_the_losses_of_the_fit_before_are_not_this_ones(fit: Any) -> None:
    fit(lambda step: None)
    losses = []
    fit(lambda step: losses.append(seen().loss if step == 0 else None))
    assert losses[0] is None


def test_a_loss_that_breaks_is_told_with_its_step(fit: Any, run: Any) -> None:
    run("broken = DigitReader(wrong_at=2)")
    found = []
    call = stopping_once(lambda: seen().broken and found.append(seen()) is None)
    fit(call, "broken", max_epochs=1000)
    assert found[0].broken.startswith("loss NaN since step 3")
    assert math.isnan(found[0].loss)
    assert seen() is None


def test_a_fit_is_told_no_longer_however_it_ends(
    fit: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    def fails(step: int) -> None:
        told.append(seen())
        if step == 3:
            raise ValueError("the data is broken")

    def interrupts(step: int) -> None:
        told.append(seen())
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert isinstance(fit(fails).error, ValueError)
    assert seen() is None
    assert isinstance(fit(interrupts, max_epochs=1000).error, KeyboardInterrupt)
    assert seen() is None

    def collapse(*_: object) -> None:
        raise RuntimeError("the panel is broken")

    # A panel that fails in the sampler's thread takes the fit from nobody else, and where
    # it fails at the end, nothing stays.
    monkeypatch.setattr("hpu_magic.panels.terminal.TerminalView.draw", collapse)
    call = stopping_once(lambda: seen().step >= 20)
    assert isinstance(fit(call, max_epochs=1000).error, RuntimeError)
    assert None not in told
    assert seen() is None


def test_stop_from_another_thread_is_the_panels_stop(fit: Any, run: Any) -> None:
    phases = []

    def press() -> None:
        assert sessions.stop_fit().model == "DigitReader"
        phases.append(seen().phase)

    def call(step: int) -> None:
        if step == 5:
            presser = threading.Thread(target=press)
            presser.start()
            presser.join()

    assert fit(call, max_epochs=1000).error is None
    result = run("result").result
    assert (result.outcome, result.stopped_early, result.steps) == ("stopped", True, 6)
    assert phases == ["stopping"]
    assert (sessions.stop_fit(), seen()) == (None, None)


def test_a_script_without_a_session_tells_its_fit_until_it_is_killed(own_folder: Any) -> None:
    code = f"""
        from pathlib import Path
        from hpu_magic import private_folder
        private_folder._OPEN_TO_ALL = (Path({str(own_folder.parents[1])!r}),)
        exec({SETUP!r})
        import time, hpu_magic
        def call(step):
            time.sleep(0.1)
            if step == 20:
                print(flush=True)
                time.sleep(60)
        hpu_magic.fit(make_trainer(call, accelerator="cpu", max_epochs=9), model, data)
    """
    with started(code) as process:
        session = sessions.session(process.pid)
        assert (session.notebook, session.idle, session.name) == (None, 0, None)
        assert (session.fit.model, session.fit.stoppable) == ("DigitReader", False)
        assert 5 <= session.fit.step <= 20
        process.kill()
        process.communicate()
    assert sessions.session(process.pid) is None


@pytest.mark.parametrize(("rank", "ranks", "told"), [(0, 1, True), (0, 2, True), (1, 2, False)])
def test_of_ranks_the_first_tells_and_none_can_be_stopped_alone(
    own_folder: Any, rank: int, ranks: int, told: bool
) -> None:
    from hpu_magic.fits.session import FitSession

    source = SimpleNamespace(model_name="DigitReader", device="cpu", rank=rank, ranks=ranks)
    session = FitSession(source)  # type: ignore[arg-type]
    announced = sessions.Announcement(None, running=True, stoppable=True)
    with session.published():
        assert (seen() is not None) == told
        assert (seen() is not None and seen().stoppable) == (ranks == 1)
    assert seen() is None
    announced.withdraw()
