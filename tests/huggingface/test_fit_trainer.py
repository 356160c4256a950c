"""Fits of transformers' Trainer with a panel: what is told, how they end, what they leave."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from small_trainer import SETUP


@pytest.fixture
def trains(run: Callable[[str], Any]) -> Callable[[str], Any]:
    """Run a cell in a shell that has `trainer`, `make_trainer`, `At` and `rows`."""
    assert run(SETUP).error is None
    return run


@pytest.fixture
def stop(shell: Any) -> Callable[[], None]:
    """Press Stop on the fit of the shell's `long`."""
    from hpu_magic.huggingface.monitor import FitMonitorBase

    def press() -> None:
        callbacks = shell.user_ns["long"].callback_handler.callbacks
        [monitor] = [one for one in callbacks if isinstance(one, FitMonitorBase)]
        monitor._steps._to.stopped.set()

    shell.user_ns["stop"] = press
    return press


@proves(TRANSFORMERS, "`Trainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`")
def test_line_form_returns_the_result(trains: Callable[[str], Any], own_card: str) -> None:
    cell = trains("result = %hpu_fit trainer")
    assert cell.error is None
    result = trains("result").result
    assert (result.outcome, result.steps, result.batches) == ("finished", 8, 8)
    assert (result.where, result.trained) == ("epoch 2 of 2, batch 4 of 4", "2 epochs")
    assert result.device == own_card
    assert result.peak > 0
    assert result.steps_per_second > 0
    assert {"loss", "grad_norm", "learning_rate", "train_loss"} < result.metrics.keys()
    assert cell.out.count(f"Fit finished on {own_card}: 2 epochs") == 1
    assert "{'loss'" not in cell.out  # what the Trainer prints where nobody else shows it


def test_the_losses_are_those_of_the_steps(trains: Callable[[str], Any], shell: Any) -> None:
    from hpu_magic.runtime.training.sampler import sampler

    seen = sampler().cursor("train")
    trains(
        """
        import time
        class Slow(Trainer):
            def training_step(self, *batch, **more):
                loss = super().training_step(*batch, **more)
                told.append(loss.item())
                time.sleep(0.06)
                return loss
        told = []
        slow = make_trainer(trainer_class=Slow, gradient_accumulation_steps=2, num_train_epochs=8)
        result = %hpu_fit --interval 0.05 slow
        """
    )
    result, told = trains("result, told").result
    assert (result.steps, result.batches) == (16, 32)
    of_steps = [first + second for first, second in zip(told[::2], told[1::2], strict=True)]
    values, _ = sampler().read("train", seen)
    drawn = dict(zip(values["step"], values["value"], strict=True))
    assert len(drawn) >= 12
    for step, value in drawn.items():
        assert value == pytest.approx(of_steps[int(step) - 1], rel=1e-5)


def test_a_loss_that_is_overwritten_in_place_keeps_its_value(
    trains: Callable[[str], Any], shell: Any
) -> None:
    from hpu_magic.runtime.training.sampler import sampler

    seen = sampler().cursor("train")
    cell = trains(
        """
        class Running(Trainer):
            total = None
            def training_step(self, *batch, **more):
                loss = super().training_step(*batch, **more)
                if self.total is None:
                    self.total = torch.zeros_like(loss)
                return self.total.fill_(self.state.global_step + 1)
            def _maybe_log_save_evaluate(self, *state, **more):
                self.total.zero_()
                return super()._maybe_log_save_evaluate(*state, **more)
        running = make_trainer(trainer_class=Running, logging_strategy="no")
        result = %hpu_fit running
        """
    )
    assert cell.error is None
    values, _ = sampler().read("train", seen)
    assert values["value"][-1] == 8.0
    assert list(values["value"]) == list(values["step"])


def test_evaluations_lie_in_the_chart_of_the_loss(trains: Callable[[str], Any]) -> None:
    trains(
        """
        def count(predicted):
            return {"accuracy": (predicted.predictions.argmax(-1) == predicted.label_ids).mean()}
        judged = make_trainer(eval_strategy="steps", eval_steps=2)
        judged.compute_metrics = count
        result = %hpu_fit judged
        """
    )
    result = trains("result").result
    assert (result.outcome, result.steps) == ("finished", 8)
    assert result.metrics["eval_loss"] == pytest.approx(math.log(2), abs=0.1)
    assert 0 <= result.metrics["eval_accuracy"] <= 1
    assert result.picture.count(">validation") == result.picture.count(">eval_accuracy") == 1


def test_values_logged_before_an_evaluation_are_of_the_training(
    trains: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpu_magic.runtime.training.curves import Curves

    stages: dict[str, set[str]] = {}
    follow = Curves.follow

    def noting(curves: Curves, name: str, belongs: str, stage: str, *more: Any, **options: Any):
        stages.setdefault(name, set()).add(stage)
        return follow(curves, name, belongs, stage, *more, **options)

    monkeypatch.setattr(Curves, "follow", noting)
    trains('judged = make_trainer(eval_strategy="steps", eval_steps=2)\nr = %hpu_fit judged')
    assert stages["learning_rate"] == {"training"}
    assert stages["loss"] == {"training"}
    assert stages["eval_loss"] == {"validation"}
    assert "loss, best" in trains("r.picture").result


def test_early_stopping_is_named(trains: Callable[[str], Any], own_card: str) -> None:
    cell = trains(
        """
        from transformers import EarlyStoppingCallback
        judged = make_trainer([EarlyStoppingCallback(2)], num_train_epochs=9, eval_strategy="epoch",
            save_strategy="epoch", load_best_model_at_end=True, learning_rate=0.0,
            metric_for_best_model="eval_loss", greater_is_better=False)
        result = %hpu_fit judged
        """
    )
    assert f"Fit finished early on {own_card}: 3 epochs in " in cell.out
    assert (
        "Ended in epoch 3 of 9, batch 4 of 4 by EarlyStoppingCallback: eval_loss did not improve "
        "in 2 checks." in cell.out
    )


def test_figures_of_bookkeeping_have_no_chart_and_come_last(trains: Callable[[str], Any]) -> None:
    trains(
        """
        class Telling(Trainer):
            def log(self, logs, *more):
                if "eval_loss" in logs:
                    logs |= {"eval_end_time": time.time(), "eval_num_tokens": 288.0}
                super().log({"memory_allocated (GB)": 0.1, "gain": 2.0, **logs}, *more)
        import time
        telling = make_trainer(trainer_class=Telling, eval_strategy="epoch")
        result = %hpu_fit telling
        """
    )
    result = trains("result").result
    names = list(result.metrics)
    assert {"gain", "eval_loss"} < set(names[:6])
    assert {"memory_allocated (GB)", "eval_end_time", "train_runtime"} < set(names[6:])
    assert "eval_num_tokens" not in names
    titles = re.findall(r'font-size="11"[^>]*>([^<,]+)', result.picture)
    assert {"loss", "learning_rate", "gain"} <= set(titles)
    assert not (
        set(titles) & {"memory_allocated (GB)", "end_time", "runtime", "num_tokens", "grad_norm"}
    )


def test_cell_form_returns_what_train_returns(trains: Callable[[str], Any]) -> None:
    cell = trains("%%hpu_fit -o kept\nout = trainer.train()\nmake_trainer().train()\nNone")
    assert cell.error is None
    assert cell.out.count("Fit finished") == 2
    assert trains("out.global_step, kept.steps").result == (8, 8)
    assert "Fit finished" not in trains("make_trainer().train()").out
    assert trains("'train' in vars(Trainer), '__init_subclass__' in vars(Trainer)").result == (
        True,
        False,
    )


def test_classes_that_train_in_their_own_way_have_one_panel(trains: Callable[[str], Any]) -> None:
    trains(
        """
        class Before(Trainer):
            def train(self, *given, **more):
                self.did = "before"
                return super().train(*given, **more)
        """
    )
    cell = trains(
        """
        %%hpu_fit -o kept
        make_trainer(trainer_class=Before).train()
        class Within(Before):
            def train(self):
                return super().train()
        within = make_trainer(trainer_class=Within)
        within.train()
        """.replace("\n        ", "\n").strip()
    )
    assert cell.error is None
    assert cell.out.count("Fit finished") == 2
    assert trains("within.did, kept.steps").result == ("before", 8)


def test_what_shows_progress_is_replaced_and_put_back(trains: Callable[[str], Any]) -> None:
    trains("before = list(trainer.callback_handler.callbacks)")
    cell = trains("%hpu_fit trainer")
    assert trains("trainer.callback_handler.callbacks == before").result
    assert "training_step" not in trains("list(vars(trainer))").result
    assert "it/s" not in cell.err
    quiet = trains("q = make_trainer(disable_tqdm=True)\n%hpu_fit q")
    assert "grad_norm': '" not in quiet.out


ENDS = {
    "stop": ("stopped", None),
    "interrupt": ("interrupted", KeyboardInterrupt),
    "fail": ("failed", ValueError),
}
FORMS = {"line": "%hpu_fit -o kept long", "cell": "%%hpu_fit -o kept\nlong.train()"}


@proves(TRANSFORMERS, "`Trainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ENDS)
def test_the_result_is_kept_however_the_fit_ends(
    trains: Callable[[str], Any], shell: Any, stop: Any, torch: Any, how: str, form: str
) -> None:
    outcome, error = ENDS[how]
    shell.user_ns["interrupt"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    trains("def fail():\n    raise ValueError('the data is broken')")
    trains(f"long = make_trainer([At(5, {how})], num_train_epochs=1000)")
    callbacks = trains("len(long.callback_handler.callbacks)").result
    cell = trains(FORMS[form])
    assert (type(cell.error) if cell.error else None) is error
    kept = shell.user_ns["kept"]
    assert (kept.outcome, kept.steps) == (outcome, 6 if how == "stop" else 5)
    assert kept.where == "epoch 2 of 1000, batch 2 of 4"
    assert kept.error == ("ValueError: the data is broken" if how == "fail" else None)
    assert kept.metrics["loss"] > 0
    assert kept.picture.startswith("<svg")
    assert len(shell.user_ns["long"].callback_handler.callbacks) == callbacks
    assert trains("%hpu_fit trainer").error is None


def test_a_failure_is_shown_without_the_frameworks_frames(
    trains: Callable[[str], Any], own_card: str
) -> None:
    trains(
        """
        class Broken(Trainer):
            def compute_loss(self, *given, **more):
                raise ValueError("the loss is broken")
        broken = make_trainer(trainer_class=Broken)
        """
    )
    cell = trains("%hpu_fit broken")
    assert isinstance(cell.error, ValueError)
    assert "skipping hidden" in cell.out
    assert "Broken.compute_loss" in cell.out
    assert "_inner_training_loop" not in cell.out
    assert f"Fit failed on {own_card} in epoch 1 of 2, batch 1 of 4" in cell.out


def test_stop_completes_the_accumulated_step(
    trains: Callable[[str], Any], shell: Any, stop: Any
) -> None:
    trains(
        """
        class Sub(TrainerCallback):
            def on_substep_end(self, args, state, control, **_):
                if state.global_step == 3:
                    stop()
        long = make_trainer([Sub()], gradient_accumulation_steps=4, num_train_epochs=1000)
        result = %hpu_fit long
        """
    )
    result = trains("result").result
    assert (result.outcome, result.steps, result.batches) == ("stopped", 4, 16)


def test_stop_during_an_evaluation_ends_the_fit_after_it(
    trains: Callable[[str], Any], stop: Any
) -> None:
    trains(
        """
        class Judging(TrainerCallback):
            def on_prediction_step(self, *_, **__):
                stop()
        long = make_trainer([Judging()], eval_strategy="steps", eval_steps=3, max_steps=500)
        result = %hpu_fit long
        """
    )
    result = trains("result").result
    assert (result.outcome, result.steps, "eval_loss" in result.metrics) == ("stopped", 3, True)


def test_a_resumed_fit_goes_on_where_it_was(trains: Callable[[str], Any]) -> None:
    trains("make_trainer(save_strategy='steps', save_steps=6).train()")
    trains("import hpu_magic; resumed = make_trainer(num_train_epochs=3)")
    cell = trains(
        "result = hpu_magic.fit(resumed, resume_from_checkpoint=folder + '/checkpoint-6')"
    )
    assert cell.error is None
    result = trains("result").result
    assert (result.outcome, result.steps, result.batches) == ("finished", 6, 6)
    assert (result.where, result.trained) == ("epoch 3 of 3, batch 4 of 4", "2 epochs")


def test_steps_that_are_set_end_the_fit_within_an_epoch(trains: Callable[[str], Any]) -> None:
    trains("short = make_trainer(max_steps=6)\nresult = %hpu_fit short")
    result = trains("result").result
    assert (result.outcome, result.where) == ("finished", "epoch 2 of 2, batch 2 of 4")
    assert result.trained == "1 epoch and 2 batches"


def test_data_without_a_length_has_no_last_batch(trains: Callable[[str], Any]) -> None:
    trains(
        """
        class Endless(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(rows)
        streamed = make_trainer(data=Endless(), max_steps=6)
        result = %hpu_fit streamed
        """
    )
    result = trains("result").result
    assert (result.outcome, result.steps) == ("finished", 6)
    assert result.where == "epoch 2, batch 2"


def test_a_loss_that_is_nan_is_named_though_the_trainer_hides_it(
    trains: Callable[[str], Any],
) -> None:
    trains(
        """
        import time
        class Odd(Trainer):
            def compute_loss(self, *given, **more):
                time.sleep(0.05)
                loss = super().compute_loss(*given, **more)
                return loss * float("nan") if self.state.global_step == 9 else loss
        odd = make_trainer(trainer_class=Odd, num_train_epochs=4, max_grad_norm=0,
            learning_rate=0.0, weight_decay=0.0)
        result = %hpu_fit --interval 0.05 odd
        """
    )
    result = trains("result").result
    assert not math.isnan(result.metrics["loss"])
    first = result.not_finite[0]
    assert (first.curve, first.value, first.step) == ("loss", "NaN", 10)


def test_a_trainer_on_the_cpu_says_so(trains: Callable[[str], Any]) -> None:
    trains("cpu = make_trainer(use_cpu=True)\nresult = %hpu_fit cpu")
    result = trains("result").result
    assert (result.outcome, result.device, result.peak) == ("finished", "cpu", None)


def test_other_processes_are_told_and_can_stop_it(
    trains: Callable[[str], Any], shell: Any, own_folder: Any
) -> None:
    from hpu_magic import sessions

    announced = sessions.Announcement(None, running=True, stoppable=True)
    told = []

    def look() -> None:
        deadline = time.monotonic() + 100
        while not told or told[-1].phase != "training":
            assert time.monotonic() < deadline
            time.sleep(0.05)
            told.append(sessions.session(os.getpid()).fit)
        assert sessions.stop_fit()

    shell.user_ns["look"] = look
    trains("long = make_trainer([At(3, look)], num_train_epochs=1000)\nr = %hpu_fit long")
    assert trains("r.outcome, r.steps").result == ("stopped", 4)
    fit = told[-1]
    assert (fit.model, fit.epoch, fit.epochs) == ("BertForSequenceClassification", 1, 1000)
    assert fit.batches == 4
    assert sessions.session(os.getpid()).fit is None
    announced.withdraw()


def test_a_model_with_adapters_is_called_what_it_is(trains: Callable[[str], Any]) -> None:
    pytest.importorskip("peft")
    cell = trains(
        """
        import peft
        adapted = make_trainer()
        adapted = Trainer(peft.get_peft_model(adapted.model, peft.LoraConfig(task_type="SEQ_CLS",
            target_modules=["query"])), adapted.args, train_dataset=rows)
        result = %hpu_fit adapted
        """
    )
    assert cell.error is None
    assert trains("result.outcome, result.steps").result == ("finished", 8)
    from hpu_magic.huggingface.source import TrainerSource

    assert TrainerSource(trains("adapted").result).model_name == "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "%hpu_fit rows",
            "The first argument must be a Lightning or transformers Trainer, got a list",
        ),
        ("%hpu_fit trainer config", "already has a model, a BertForSequenceClassification"),
        ("%hpu_fit trainer model rows", "gets its data as train_dataset when it is created"),
        ("%hpu_fit empty", "The Trainer has no data: write Trainer("),
        ("%hpu_fit meta", "weights of the model are on meta and have no values"),
    ],
)
def test_wrong_input_gets_one_sentence(
    trains: Callable[[str], Any], line: str, sentence: str
) -> None:
    trains("model, empty, meta = trainer.model, make_trainer(data=None), make_trainer()")
    trains("meta.model = meta.model.to('meta')")
    cell = trains(line)
    assert type(cell.error).__name__ == "UsageError"
    assert sentence in str(cell.error)
    assert "Traceback" not in cell.out + cell.err


def test_a_cell_that_imports_the_framework_itself_is_observed_and_nothing_else_is_loaded() -> None:
    program = f"""
import sys, hpu_magic
from hpu_magic.fits.observed import observed_fits
with observed_fits() as results:
    assert "transformers" not in sys.modules
    exec({SETUP!r})
    trainer.train()
assert (results[0].outcome, results[0].steps) == ("finished", 8)
assert hpu_magic.fit(make_trainer()).outcome == "finished"
print("lightning" in sys.modules, "pytorch_lightning" in sys.modules)
"""
    environment = {**os.environ, "HPU_MAGIC_SIMULATOR": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=180,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("False False")


def test_a_trainer_is_offered_where_one_is_wanted(trains: Callable[[str], Any], shell: Any) -> None:
    for line in ("%hpu_fit ", "%hpu_fit tr"):
        text, offered = shell.complete("", line, len(line))
        assert "trainer" in offered, (line, text, offered)
        assert "rows" not in offered
        assert "make_trainer" not in offered


def test_nothing_is_offered_behind_a_trainer_that_has_its_model(
    trains: Callable[[str], Any], shell: Any
) -> None:
    trains(
        """
        import lightning.pytorch
        class Net(lightning.pytorch.LightningModule): pass
        class Holder: pass
        of_lightning, net, held = lightning.pytorch.Trainer(logger=False), Net(), Holder()
        held.trainer, loader = trainer, torch.utils.data.DataLoader(rows)
        """
    )
    cases = {
        "trainer": [],
        "trainer net": [],
        "-o kept held.trainer": [],
        "of_lightning": ["net"],
        "of_lightning net": ["loader"],
        "nobody": ["net"],
    }
    options = ["--interval", "--output", "--panel"]
    for words, expected in cases.items():
        line = f"%hpu_fit {words} "
        wanted = expected or [one for one in options if one != "--output" or "-o" not in words]
        assert shell.complete("", line, len(line))[1] == wanted, words


FAILS = """
class Fails(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3:
            raise ValueError("no more")
class Log(Fails):
    def on_step_end(self, *_, **__):
        pass
    def on_log(self, *_, **__):
        raise ValueError("no more")
class Optimizer(torch.optim.SGD):
    def step(self, *_, **__):
        raise ValueError("no more")
def judge(predicted):
    raise ValueError("no more")
"""


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("long.add_callback(Fails)", "epoch 1 of 2, batch 3 of 4"),
        ("long.add_callback(Log)", "epoch 1 of 2, batch 2 of 4"),
        ("long.optimizer = Optimizer(long.model.parameters(), 0.1)", "epoch 1 of 2, batch 1 of 4"),
        ("long.compute_metrics = judge", "epoch 1 of 2, validation batch 2"),
    ],
    ids=["step", "log", "optimizer", "metrics"],
)
def test_what_fails_after_a_batch_is_told_of_that_batch(
    trains: Callable[[str], Any], change: str, where: str
) -> None:
    trains(f"{FAILS}\nlong = make_trainer(eval_strategy='epoch')\n{change}")
    assert isinstance(trains("%hpu_fit -o result long").error, ValueError)
    assert trains("result").result.where == where


def test_words_that_are_logged_are_no_metrics(trains: Callable[[str], Any]) -> None:
    trains(
        """
        import numpy
        class Wordy(Trainer):
            def log(self, logs, *more):
                odd = {"stage": numpy.str_("warm"), "names": numpy.array(["a"]), "big": 10**400,
                    "wave": numpy.complex64(1), "nothing": None, "gain": numpy.float32(2),
                    "shift": numpy.array([3.0])}
                super().log({**logs, **odd}, *more)
        wordy = make_trainer(trainer_class=Wordy)
        """
    )
    cell = trains("result = %hpu_fit wordy")
    assert cell.error is None
    assert "Warning" not in cell.out + cell.err
    logged = trains("result").result.metrics
    assert (logged["gain"], logged["shift"]) == (2, 3)
    assert not {"stage", "names", "big", "wave", "nothing"} & logged.keys()


def test_epochs_that_end_early_are_counted_in_batches(trains: Callable[[str], Any]) -> None:
    trains(
        """
        class Half(TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                control.should_epoch_stop = state.global_step % 2 == 0
        halves = make_trainer([Half()], num_train_epochs=3)
        result = %hpu_fit halves
        """
    )
    result = trains("result").result
    assert (result.batches, result.trained) == (6, "6 batches")


def test_a_fit_that_was_over_already_trains_nothing(trains: Callable[[str], Any]) -> None:
    trains("make_trainer(save_strategy='steps', save_steps=8).train()")
    trains("import hpu_magic; again = make_trainer()")
    trains("result = hpu_magic.fit(again, resume_from_checkpoint=folder + '/checkpoint-8')")
    result = trains("result").result
    assert (result.outcome, result.steps, result.where) == (
        *("finished", 0),
        "before the first batch",
    )


def test_a_fit_by_function_is_one_of_the_cell(trains: Callable[[str], Any]) -> None:
    cell = trains("%%hpu_fit -o kept\nimport hpu_magic\ngiven = hpu_magic.fit(make_trainer())")
    assert cell.error is None
    assert cell.out.count("Fit finished") == 1
    assert "saw no trainer" not in cell.out
    assert trains("kept is given").result
    trains("del kept\nhpu_magic.fit(make_trainer())")
    assert "kept" not in trains("dir()").result


def test_a_loader_of_ones_own_is_data(trains: Callable[[str], Any]) -> None:
    trains("import hpu_magic; own = make_trainer(data=None)")
    trains("own.get_train_dataloader = lambda: torch.utils.data.DataLoader(rows, batch_size=8)")
    assert trains("hpu_magic.fit(own).steps").result == 8


def test_a_fit_within_itself_is_refused(trains: Callable[[str], Any]) -> None:
    trains("import hpu_magic; long = make_trainer([At(2, lambda: hpu_magic.fit(long))])")
    cell = trains("long_result = hpu_magic.fit(long)")
    assert str(cell.error).startswith("A fit of this Trainer is already running with a panel: wait")


def test_what_is_taken_out_within_a_fit_stays_out(trains: Callable[[str], Any]) -> None:
    trains("long = make_trainer([At(2, lambda: vars(long).pop('training_step'))])")
    cell = trains("result = %hpu_fit long")
    assert cell.error is None
    assert trains("result.steps, 'training_step' in vars(long)").result == (8, False)


def test_the_result_tells_how_long_the_trainer_waited(trains: Callable[[str], Any]) -> None:
    cell = trains(
        """
        import time, hpu_magic
        class Slow(list):
            def __getitem__(self, index):
                time.sleep(0.02)
                return super().__getitem__(index)
        slow = make_trainer(data=Slow(rows), gradient_accumulation_steps=2)
        hpu_magic.fit(slow)
        """
    )
    assert cell.error is None
    seen = cell.result.observed
    assert seen.waited_seconds >= 2 * 32 * 0.02
    assert seen.waited_share > 0.5
    assert (seen.epochs, seen.settings.accumulate, seen.settings.optimizer) == (2, 2, "AdamW")
    assert (seen.settings.precision, seen.settings.loader.workers) == ("32-true", 0)
    assert not {"training_step", "get_batch_samples"} & set(trains("vars(slow)").result)
