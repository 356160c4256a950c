"""`-o NAME` stores the result of a fit, even after an error."""

import os
import signal

import pytest
from small_fit import monitor_of

FITS = """
class Calls(pl.Callback):
    def __init__(self, call):
        self.call = call
    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == 5:
            self.call(trainer)
def calling(call):
    return make_trainer(max_epochs=1000, callbacks=[Calls(call)])
def fail(trainer):
    raise ValueError("the data is broken")
def leave(trainer):
    raise SystemExit(3)
"""
# Outcome, exception of the cell.
ENDS = {
    "stop": ("stopped", None),
    "interrupt": ("interrupted", KeyboardInterrupt),
    "fail": ("failed", ValueError),
    "leave": ("failed", SystemExit),
}
FORMS = {
    "line": "long = calling({call})\n%hpu_fit -o kept long model data",
    "cell": "%%hpu_fit -o kept\ncalling({call}).fit(model, data)",
}


@pytest.fixture
def ending(fits, run, shell):
    """Run a cell; `stop`, `interrupt`, `fail` and `leave` end a fit in its fifth step."""
    fits(FITS)
    shell.user_ns["stop"] = lambda trainer: monitor_of(trainer).stop()
    shell.user_ns["interrupt"] = lambda trainer: os.kill(os.getpid(), signal.SIGINT)
    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", ENDS)
def test_result_is_stored_for_each_outcome(ending, shell, call, form):
    outcome, error = ENDS[call]
    cell = ending(FORMS[form].format(call=call))
    assert (type(cell.error) if cell.error else None) is error
    kept = shell.user_ns["kept"]
    assert (kept.outcome, kept.steps) == (outcome, 6 if call == "stop" else 5)
    assert kept.where == "epoch 2 of 1000, batch 2 of 4"
    assert kept.error == (f"{error.__name__}: {cell.error}" if outcome == "failed" else None)
    assert kept.metrics["train_loss"] > 0
    assert kept.picture.startswith("<svg")
    # Another cell shows the complete result.
    assert kept.title() in ending("kept").out


def test_failed_last_fit_of_a_cell_is_stored(ending):
    cell = ending(
        "%%hpu_fit -o kept\ntrainer.fit(model, data)\ncalling(fail).fit(model, data)\n"
        "make_trainer().fit(model, data)"
    )
    assert isinstance(cell.error, ValueError)
    assert cell.out.count("Fit finished") == cell.out.count("Fit failed") == 1
    assert ending("kept.outcome").result == "failed"


def test_fit_after_a_caught_failure_replaces_its_result(ending):
    cell = ending(
        "%%hpu_fit -o kept\ntry:\n    calling(fail).fit(model, data)\n"
        "except ValueError:\n    trainer.fit(model, data)"
    )
    assert cell.error is None
    assert ending("kept.outcome, kept.steps").result == ("finished", 8)


def test_error_after_the_fit_keeps_its_result(ending):
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
def test_variable_is_unchanged_if_no_fit_ran(ending, refused):
    ending("kept = 'as it was'")
    assert ending(refused).error is not None
    assert ending("kept").result == "as it was"
