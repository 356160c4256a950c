"""`-o NAME` is set however a fit ends, and only where one has run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

FITS = """
class Calls(pl.Callback):
    def __init__(self, call):
        self.call = call
    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == 5:
            self.call(trainer)
def one(call):
    return make_trainer(max_epochs=1000, callbacks=[Calls(call)])
def fail(trainer):
    raise ValueError("the data is broken")
def leave(trainer):
    raise SystemExit(3)
"""
# How it ends, the exception of the cell, where.
ENDS = {
    "stop": ("stopped", None, "epoch 2 of 1000, batch 2 of 4"),
    "interrupt": ("interrupted", KeyboardInterrupt, "epoch 2 of 1000, batch 2 of 4"),
    "fail": ("failed", ValueError, "epoch 2 of 1000, batch 2 of 4"),
    "leave": ("failed", SystemExit, "epoch 2 of 1000, batch 2 of 4"),
}
FORMS = {
    "line": "long = one({call})\n%hpu_fit -o kept long model data",
    "cell": "%%hpu_fit -o kept\none({call}).fit(model, data)",
}


@pytest.fixture
def ending(fits: Callable[[str], Any], shell: Any) -> Callable[[str], Any]:
    """Run a cell that has, for the fifth step: `stop`, `interrupt`, `fail` and `leave`."""
    from hpu_magic.lightning.fit.monitor import LightningMonitorBase

    assert fits(FITS).error is None

    def stop(trainer: Any) -> None:
        [monitor] = [each for each in trainer.callbacks if isinstance(each, LightningMonitorBase)]
        monitor.stop()

    shell.user_ns["stop"] = stop
    shell.user_ns["interrupt"] = lambda trainer: os.kill(os.getpid(), signal.SIGINT)
    return fits


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", ENDS)
def test_the_result_is_kept_however_the_fit_ends(
    ending: Callable[[str], Any], shell: Any, call: str, form: str
) -> None:
    outcome, error, where = ENDS[call]
    cell = ending(FORMS[form].format(call=call))
    assert (type(cell.error) if cell.error else None) is error
    kept = shell.user_ns["kept"]
    assert (kept.outcome, kept.where, kept.steps) == (outcome, where, 6 if call == "stop" else 5)
    assert kept.error == (f"{error.__name__}: {cell.error}" if outcome == "failed" else None)
    assert kept.metrics["train_loss"] > 0
    assert kept.picture.startswith("<svg")
    # In another cell it shows itself as a whole.
    assert kept.title() in ending("kept").out


def test_the_last_fit_of_a_cell_is_kept_though_it_failed(ending: Callable[[str], Any]) -> None:
    cell = ending(
        "%%hpu_fit -o kept\ntrainer.fit(model, data)\none(fail).fit(model, data)\n"
        "make_trainer().fit(model, data)"
    )
    assert isinstance(cell.error, ValueError)
    assert cell.out.count("Fit finished") == cell.out.count("Fit failed") == 1
    assert ending("kept.outcome").result == "failed"


def test_a_failure_that_the_cell_catches_is_followed_by_the_next_result(
    ending: Callable[[str], Any],
) -> None:
    cell = ending(
        "%%hpu_fit -o kept\ntry:\n    one(fail).fit(model, data)\n"
        "except ValueError:\n    trainer.fit(model, data)"
    )
    assert cell.error is None
    assert ending("kept.outcome, kept.steps").result == ("finished", 8)


def test_what_fails_after_the_fit_leaves_the_fits_result(ending: Callable[[str], Any]) -> None:
    cell = ending("%%hpu_fit -o kept\ntrainer.fit(model, data)\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert ending("kept.outcome").result == "finished"


@pytest.mark.parametrize(
    "refused",
    [
        "%hpu_fit -o kept model trainer",
        "%hpu_fit -o kept trainer data",
        "%hpu_fit -o kept --interval 0 trainer model data",
        "%%hpu_fit -o kept --interval 0\ntrainer.fit(model, data)",
        "%%hpu_fit -o kept\n1 / 0",
    ],
)
def test_nothing_is_kept_where_no_fit_ran(ending: Callable[[str], Any], refused: str) -> None:
    ending("kept = 'as it was'")
    assert ending(refused).error is not None
    assert ending("kept").result == "as it was"
