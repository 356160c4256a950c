"""Test publishing a running fit for other processes."""

import math
import os
import signal
import textwrap
import threading
import time
from types import SimpleNamespace

import pytest
from small_fit import TRAINER

from hpu_magic import sessions

SETUP = f"""{TRAINER}
class DigitReader(Layer):
    def __init__(self, wrong_at=None):
        super().__init__()
        self.wrong_at = wrong_at
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        return loss * float("nan") if self.global_step == self.wrong_at else loss
class Calling(pl.Callback):
    "Call a function with the step at the start of each batch."
    def __init__(self, call):
        self.call = call
    def on_train_batch_start(self, trainer, *_):
        self.call(trainer.global_step)
model, data = DigitReader(), loader()
"""


def published_fit():
    session = sessions.session(os.getpid())
    return session and session.fit


@pytest.fixture
def fit(run, succeeds, shell, own_folder):
    """Run a fit that calls a function at the start of each batch; return the cell."""
    succeeds(SETUP)

    def run_fit(call, model="model", **options):
        callbacks = [shell.user_ns["Calling"](call)]
        shell.user_ns["trainer"] = shell.user_ns["make_trainer"](callbacks=callbacks, **options)
        return run(f"result = %hpu_fit trainer {model} data")

    return run_fit


def stopping_once(condition):
    """Return a batch callback that stops the fit if a condition is true."""
    deadline = time.monotonic() + 30

    def call(step):
        if condition():
            assert sessions.stop_fit() is not None
        assert time.monotonic() < deadline, f"published: {published_fit()}"
        time.sleep(0.02)

    return call


@pytest.mark.parametrize("accelerator", ["hpu", "cpu"])
def test_running_fit_is_published_until_it_finishes(fit, accelerator):
    published = []

    def call(step):
        assert published_fit() is not None
        published.append(published_fit())
        time.sleep(0.5 if step in (5, 6, 7, 8) else 0)

    cell = fit(call, max_epochs=3, accelerator=accelerator)
    assert cell.error is None
    assert published_fit() is None
    first, last = published[0], published[-1]
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
    assert len(set(published)) < len(published)  # not every batch is published


def test_published_loss_does_not_come_from_the_previous_fit(fit):
    fit(lambda step: None)
    losses = []
    fit(lambda step: losses.append(published_fit().loss if step == 0 else None))
    assert losses[0] is None


def test_nan_loss_is_published_with_its_step(fit, run):
    run("broken = DigitReader(wrong_at=2)")
    found = []
    call = stopping_once(lambda: published_fit().broken and found.append(published_fit()) is None)
    fit(call, "broken", max_epochs=1000)
    assert found[0].broken.startswith("loss NaN since step 3")
    assert math.isnan(found[0].loss)
    assert published_fit() is None


def test_published_fit_is_removed_after_each_kind_of_end(fit, run, monkeypatch):
    published = []

    def fails(step):
        published.append(published_fit())
        if step == 3:
            raise ValueError("the data is broken")

    def interrupts(step):
        published.append(published_fit())
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert isinstance(fit(fails).error, ValueError)
    assert published_fit() is None
    assert isinstance(fit(interrupts, max_epochs=1000).error, KeyboardInterrupt)
    assert published_fit() is None

    def collapse(*_):
        raise RuntimeError("the panel is broken")

    # A panel that fails in the sampler's thread or at the end must not affect publishing.
    monkeypatch.setattr("hpu_magic.panels.terminal.TerminalView.draw", collapse)
    call = stopping_once(lambda: published_fit().step >= 20)
    assert isinstance(fit(call, max_epochs=1000).error, RuntimeError)
    assert None not in published
    assert published_fit() is None


def test_stop_fit_from_another_thread_stops_the_fit(fit, run):
    phases = []

    def press():
        assert sessions.stop_fit().model == "DigitReader"
        phases.append(published_fit().phase)

    def call(step):
        if step == 5:
            presser = threading.Thread(target=press)
            presser.start()
            presser.join()

    assert fit(call, max_epochs=1000).error is None
    result = run("result").result
    assert (result.outcome, result.stopped_early, result.steps) == ("stopped", True, 6)
    assert phases == ["stopping"]
    assert (sessions.stop_fit(), published_fit()) == (None, None)


def test_fit_of_a_script_is_published_until_the_script_is_killed(own_folder, forked_python):
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
        options = dict(accelerator="cpu", max_epochs=9, callbacks=[Calling(call)])
        hpu_magic.fit(make_trainer(**options), model, data)
    """
    reading, writing = os.pipe()
    process = forked_python.popen(
        ["", "-c", textwrap.dedent(code)], env=os.environ, stdout=writing, hides_torch=True
    )
    os.close(writing)
    with os.fdopen(reading) as output:
        output.readline()
        session = sessions.session(process.pid)
        assert (session.notebook, session.idle, session.name) == (None, 0, None)
        assert (session.fit.model, session.fit.stoppable) == ("DigitReader", False)
        assert 5 <= session.fit.step <= 20
    process.kill()
    process.wait()
    assert sessions.session(process.pid) is None


@pytest.mark.parametrize(("rank", "ranks", "expected"), [(0, 1, True), (0, 2, True), (1, 2, False)])
def test_only_rank_zero_publishes_and_no_single_rank_can_be_stopped(
    own_folder, rank, ranks, expected
):
    from hpu_magic.fits.session import FitSession

    source = SimpleNamespace(model_name="DigitReader", device="cpu", rank=rank, ranks=ranks)
    session = FitSession(source)
    announced = sessions.Announcement(None, running=True, stoppable=True)
    with session.published():
        assert (published_fit() is not None) == expected
        assert (published_fit() is not None and published_fit().stoppable) == (ranks == 1)
    assert published_fit() is None
    announced.withdraw()
