"""Test fits of transformers' `Trainer` with a panel: their results, ends and errors."""

import math
import os
import re
import signal

import pytest

pytest.importorskip("transformers")

from features import TRANSFORMERS, proves
from small_trainer import SETUP
from started_process import wait_for


@pytest.fixture
def trains(succeeds):
    """A function that runs a cell in a shell with `trainer`, `make_trainer`, `At` and `rows`."""
    succeeds(SETUP)
    return succeeds


@pytest.fixture
def fitted(trains):
    """A function that runs a cell and returns the fit's result in the variable `result`."""

    def run_cell(source):
        trains(source)
        return trains("result").result

    return run_cell


@pytest.fixture
def stop(shell):
    """A function that presses Stop in the fit of `long`, also available in the shell."""
    from hpu_magic.huggingface.monitor import TransformersMonitorBase

    def press():
        callbacks = shell.user_ns["long"].callback_handler.callbacks
        [monitor] = [each for each in callbacks if isinstance(each, TransformersMonitorBase)]
        monitor._steps._to.stopped.set()

    shell.user_ns["stop"] = press
    return press


@proves(TRANSFORMERS, "`Trainer`: live panel with `%%hpu_fit` and `hpu_magic.fit`")
def test_line_form_returns_the_result(trains, own_card):
    cell = trains("result = %hpu_fit trainer")
    result = trains("result").result
    assert (result.outcome, result.steps, result.batches) == ("finished", 8, 8)
    assert (result.where, result.trained) == ("epoch 2 of 2, batch 4 of 4", "2 epochs")
    assert result.device == own_card
    assert result.peak > 0
    assert result.steps_per_second > 0
    assert {"loss", "grad_norm", "learning_rate", "train_loss"} < result.metrics.keys()
    assert cell.out.count(f"Fit finished on {own_card}: 2 epochs") == 1
    assert "{'loss'" not in cell.out  # printed by the `Trainer` without a panel


def test_chart_shows_the_loss_of_each_step(trains, shell):
    from hpu_magic.runtime.training.sampler import sampler

    seen = sampler().cursor("train")
    trains(
        """
        import time
        class Slow(Trainer):
            def training_step(self, *batch, **more):
                loss = super().training_step(*batch, **more)
                losses.append(loss.item())
                time.sleep(0.06)
                return loss
        losses = []
        slow = make_trainer(trainer_class=Slow, gradient_accumulation_steps=2, num_train_epochs=8)
        result = %hpu_fit --interval 0.05 slow
        """
    )
    result, losses = trains("result, losses").result
    assert (result.steps, result.batches) == (16, 32)
    expected = [first + second for first, second in zip(losses[::2], losses[1::2], strict=True)]
    values, _ = sampler().read("train", seen)
    drawn = dict(zip(values["step"], values["value"], strict=True))
    assert len(drawn) >= 12
    for step, value in drawn.items():
        assert value == pytest.approx(expected[int(step) - 1], rel=1e-5)


def test_loss_overwritten_in_place_keeps_its_value(trains, shell):
    from hpu_magic.runtime.training.sampler import sampler

    seen = sampler().cursor("train")
    trains(
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
    values, _ = sampler().read("train", seen)
    assert values["value"][-1] == 8.0
    assert list(values["value"]) == list(values["step"])


def test_evaluations_are_in_the_loss_chart(fitted):
    result = fitted(
        """
        def count(predicted):
            return {"accuracy": (predicted.predictions.argmax(-1) == predicted.label_ids).mean()}
        evaluated = make_trainer(eval_strategy="steps", eval_steps=2)
        evaluated.compute_metrics = count
        result = %hpu_fit evaluated
        """
    )
    assert (result.outcome, result.steps) == ("finished", 8)
    assert result.metrics["eval_loss"] == pytest.approx(math.log(2), abs=0.1)
    assert 0 <= result.metrics["eval_accuracy"] <= 1
    # The picture has a wide and a narrow layout.
    assert result.picture.count(">validation") == result.picture.count(">eval_accuracy") == 2


def test_values_logged_before_an_evaluation_belong_to_training(trains, monkeypatch):
    from hpu_magic.runtime.training.curves import Curves

    stages = {}
    follow = Curves.follow

    def record(curves, name, belongs, stage, *more, **options):
        stages.setdefault(name, set()).add(stage)
        return follow(curves, name, belongs, stage, *more, **options)

    monkeypatch.setattr(Curves, "follow", record)
    trains('evaluated = make_trainer(eval_strategy="steps", eval_steps=2)\nr = %hpu_fit evaluated')
    assert stages["learning_rate"] == {"training"}
    assert stages["loss"] == {"training"}
    assert stages["eval_loss"] == {"validation"}
    assert "loss, best" in trains("r.picture").result


def test_early_stopping_is_reported(trains, own_card):
    cell = trains(
        """
        from transformers import EarlyStoppingCallback
        evaluated = make_trainer([EarlyStoppingCallback(2)], num_train_epochs=9,
            eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
            learning_rate=0.0, metric_for_best_model="eval_loss", greater_is_better=False)
        result = %hpu_fit evaluated
        """
    )
    assert f"Fit finished early on {own_card}: 3 epochs in " in cell.out
    assert (
        "Ended in epoch 3 of 9, batch 4 of 4 by EarlyStoppingCallback: eval_loss did not improve "
        "in 2 checks." in cell.out
    )


def test_bookkeeping_metrics_have_no_chart_and_are_last(fitted):
    result = fitted(
        """
        class Extra(Trainer):
            def log(self, logs, *more):
                if "eval_loss" in logs:
                    logs |= {"eval_end_time": time.time(), "eval_num_tokens": 288.0}
                super().log({"memory_allocated (GB)": 0.1, "gain": 2.0, **logs}, *more)
        import time
        extra = make_trainer(trainer_class=Extra, eval_strategy="epoch")
        result = %hpu_fit extra
        """
    )
    names = list(result.metrics)
    assert {"gain", "eval_loss"} < set(names[:6])
    assert {"memory_allocated (GB)", "eval_end_time", "train_runtime"} < set(names[6:])
    assert "eval_num_tokens" not in names
    titles = re.findall(r'font-size="11"[^>]*>([^<,]+)', result.picture)
    assert {"loss", "learning_rate", "gain"} <= set(titles)
    assert not (
        set(titles) & {"memory_allocated (GB)", "end_time", "runtime", "num_tokens", "grad_norm"}
    )


def test_cell_form_keeps_the_value_of_train(trains):
    cell = trains("%%hpu_fit -o kept\nout = trainer.train()\nmake_trainer().train()\nNone")
    assert cell.out.count("Fit finished") == 2
    assert trains("out.global_step, kept.steps").result == (8, 8)
    assert "Fit finished" not in trains("make_trainer().train()").out
    assert trains("'train' in vars(Trainer)").result
    assert not trains("'__init_subclass__' in vars(Trainer)").result


def test_subclass_that_overrides_train_has_one_panel(trains):
    trains(
        """
        class Before(Trainer):
            def train(self, *inputs, **more):
                self.did = "before"
                return super().train(*inputs, **more)
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
    assert cell.out.count("Fit finished") == 2
    assert trains("within.did, kept.steps").result == ("before", 8)


def test_progress_callbacks_are_replaced_and_restored(trains):
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
def test_result_is_stored_after_each_kind_of_end(trains, shell, stop, torch, how, form):
    outcome, error = ENDS[how]
    shell.user_ns["interrupt"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    trains("def fail():\n    raise ValueError('the data is broken')")
    trains(f"long = make_trainer([At(5, {how})], num_train_epochs=1000)")
    callbacks = trains("len(long.callback_handler.callbacks)").result
    cell = trains(FORMS[form], fails=error is not None)
    assert error is None or type(cell.error) is error
    kept = shell.user_ns["kept"]
    assert (kept.outcome, kept.steps) == (outcome, 6 if how == "stop" else 5)
    assert kept.where == "epoch 2 of 1000, batch 2 of 4"
    assert kept.error == ("ValueError: the data is broken" if how == "fail" else None)
    assert kept.metrics["loss"] > 0
    assert kept.picture.startswith("<svg")
    assert len(shell.user_ns["long"].callback_handler.callbacks) == callbacks
    trains("%hpu_fit trainer")


def test_traceback_of_a_failure_omits_the_librarys_frames(trains, own_card):
    trains(
        """
        class Broken(Trainer):
            def compute_loss(self, *inputs, **more):
                raise ValueError("the loss is broken")
        broken = make_trainer(trainer_class=Broken)
        """
    )
    cell = trains("%hpu_fit broken", fails=True)
    assert isinstance(cell.error, ValueError)
    assert "skipping hidden" in cell.out
    assert "Broken.compute_loss" in cell.out
    assert "_inner_training_loop" not in cell.out
    assert f"Fit failed on {own_card} in epoch 1 of 2, batch 1 of 4" in cell.out


def test_stop_completes_the_accumulated_step(fitted, shell, stop):
    result = fitted(
        """
        class Sub(TrainerCallback):
            def on_substep_end(self, args, state, control, **_):
                if state.global_step == 3:
                    stop()
        long = make_trainer([Sub()], gradient_accumulation_steps=4, num_train_epochs=1000)
        result = %hpu_fit long
        """
    )
    assert (result.outcome, result.steps, result.batches) == ("stopped", 4, 16)


def test_stop_during_an_evaluation_ends_the_fit_after_it(fitted, stop):
    result = fitted(
        """
        class StopEarly(TrainerCallback):
            def on_prediction_step(self, *_, **__):
                stop()
        long = make_trainer([StopEarly()], eval_strategy="steps", eval_steps=3, max_steps=500)
        result = %hpu_fit long
        """
    )
    assert (result.outcome, result.steps, "eval_loss" in result.metrics) == ("stopped", 3, True)


def test_resumed_fit_continues_at_its_checkpoint(trains, fitted):
    trains("make_trainer(save_strategy='steps', save_steps=6).train()")
    trains("import hpu_magic; resumed = make_trainer(num_train_epochs=3)")
    result = fitted(
        "result = hpu_magic.fit(resumed, resume_from_checkpoint=folder + '/checkpoint-6')"
    )
    assert (result.outcome, result.steps, result.batches) == ("finished", 6, 6)
    assert (result.where, result.trained) == ("epoch 3 of 3, batch 4 of 4", "2 epochs")


def test_max_steps_ends_the_fit_within_an_epoch(fitted):
    result = fitted("short = make_trainer(max_steps=6)\nresult = %hpu_fit short")
    assert (result.outcome, result.where) == ("finished", "epoch 2 of 2, batch 2 of 4")
    assert result.trained == "1 epoch and 2 batches"


def test_data_without_a_length_has_no_last_batch(fitted):
    result = fitted(
        """
        class Endless(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(rows)
        streamed = make_trainer(data=Endless(), max_steps=6)
        result = %hpu_fit streamed
        """
    )
    assert (result.outcome, result.steps) == ("finished", 6)
    assert result.where == "epoch 2, batch 2"


def test_nan_loss_is_reported_although_the_trainer_filters_it(fitted):
    result = fitted(
        """
        import time
        class Odd(Trainer):
            def compute_loss(self, *inputs, **more):
                time.sleep(0.05)
                loss = super().compute_loss(*inputs, **more)
                return loss * float("nan") if self.state.global_step == 9 else loss
        odd = make_trainer(trainer_class=Odd, num_train_epochs=4, max_grad_norm=0,
            learning_rate=0.0, weight_decay=0.0)
        result = %hpu_fit --interval 0.05 odd
        """
    )
    assert not math.isnan(result.metrics["loss"])
    first = result.not_finite[0]
    assert (first.curve, first.value, first.step) == ("loss", "NaN", 10)


def test_fit_on_the_cpu_reports_its_device(fitted):
    result = fitted("cpu = make_trainer(use_cpu=True)\nresult = %hpu_fit cpu")
    assert (result.outcome, result.device, result.peak) == ("finished", "cpu", None)


def test_other_processes_see_the_fit_and_can_stop_it(trains, shell, own_folder):
    from hpu_magic import sessions

    announced = sessions.Announcement(None, running=True, stoppable=True)
    fits = []

    def look():
        wait_for(lambda: sessions.session(os.getpid()).fit.phase == "training")
        fits.append(sessions.session(os.getpid()).fit)
        assert sessions.stop_fit()

    shell.user_ns["look"] = look
    trains("long = make_trainer([At(3, look)], num_train_epochs=1000)\nr = %hpu_fit long")
    assert trains("r.outcome, r.steps").result == ("stopped", 4)
    fit = fits[-1]
    assert (fit.model, fit.epoch, fit.epochs) == ("BertForSequenceClassification", 1, 1000)
    assert fit.batches == 4
    assert sessions.session(os.getpid()).fit is None
    announced.withdraw()


def test_model_with_adapters_has_the_name_of_its_base_model(trains):
    pytest.importorskip("peft")
    trains(
        """
        import peft
        adapted = make_trainer()
        adapted = Trainer(peft.get_peft_model(adapted.model, peft.LoraConfig(task_type="SEQ_CLS",
            target_modules=["query"])), adapted.args, train_dataset=rows)
        result = %hpu_fit adapted
        """
    )
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
        ("%hpu_fit trainer config", "already has a model of type BertForSequenceClassification"),
        ("%hpu_fit trainer model rows", "gets its data from train_dataset, not from the"),
        ("%hpu_fit empty", "The Trainer has no data: use Trainer("),
        ("%hpu_fit meta", "are on the meta device and have no values"),
    ],
)
def test_invalid_input_is_refused_in_one_sentence(trains, rejected, line, sentence):
    trains("model, empty, meta = trainer.model, make_trainer(data=None), make_trainer()")
    trains("meta.model = meta.model.to('meta')")
    assert sentence in rejected(line)


def test_library_imported_in_the_cell_is_observed_without_loading_lightning(forked_script):
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
    printed = forked_script(program, simulated=True, hides_torch=True)
    assert printed.splitlines()[-1] == "False False"


def test_completion_offers_trainers_as_first_argument(trains, shell):
    for line in ("%hpu_fit ", "%hpu_fit tr"):
        _, offered = shell.complete("", line, len(line))
        assert "trainer" in offered, (line, offered)
        assert "rows" not in offered
        assert "make_trainer" not in offered


def test_completion_offers_no_model_after_a_trainer_that_has_one(trains, shell):
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
        candidates = expected or [
            option for option in options if option != "--output" or "-o" not in words
        ]
        assert shell.complete("", line, len(line))[1] == candidates, words


FAILS = """
class Fails(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 3:
            raise ValueError("failed")
class Log(Fails):
    def on_step_end(self, *_, **__):
        pass
    def on_log(self, *_, **__):
        raise ValueError("failed")
class Optimizer(torch.optim.SGD):
    def step(self, *_, **__):
        raise ValueError("failed")
def compute(predicted):
    raise ValueError("failed")
"""


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("long.add_callback(Fails)", "epoch 1 of 2, batch 3 of 4"),
        ("long.add_callback(Log)", "epoch 1 of 2, batch 2 of 4"),
        ("long.optimizer = Optimizer(long.model.parameters(), 0.1)", "epoch 1 of 2, batch 1 of 4"),
        ("long.compute_metrics = compute", "epoch 1 of 2, validation batch 2"),
    ],
    ids=["step", "log", "optimizer", "metrics"],
)
def test_failure_after_a_batch_is_attributed_to_that_batch(trains, change, where):
    trains(f"{FAILS}\nlong = make_trainer(eval_strategy='epoch')\n{change}")
    assert isinstance(trains("%hpu_fit -o result long", fails=True).error, ValueError)
    assert trains("result").result.where == where


def test_logged_values_that_are_not_numbers_are_not_metrics(trains):
    trains(
        """
        import numpy
        class Mixed(Trainer):
            def log(self, logs, *more):
                odd = {"stage": numpy.str_("warm"), "names": numpy.array(["a"]), "big": 10**400,
                    "wave": numpy.complex64(1), "nothing": None, "gain": numpy.float32(2),
                    "shift": numpy.array([3.0])}
                super().log({**logs, **odd}, *more)
        mixed = make_trainer(trainer_class=Mixed)
        """
    )
    cell = trains("result = %hpu_fit mixed")
    assert "Warning" not in cell.out + cell.err
    logged = trains("result").result.metrics
    assert (logged["gain"], logged["shift"]) == (2, 3)
    assert not {"stage", "names", "big", "wave", "nothing"} & logged.keys()


def test_epochs_that_end_early_are_counted_in_batches(fitted):
    result = fitted(
        """
        class Half(TrainerCallback):
            def on_step_end(self, args, state, control, **_):
                control.should_epoch_stop = state.global_step % 2 == 0
        halves = make_trainer([Half()], num_train_epochs=3)
        result = %hpu_fit halves
        """
    )
    assert (result.batches, result.trained) == (6, "6 batches")


def test_fit_resumed_at_its_end_trains_nothing(trains, fitted):
    trains("make_trainer(save_strategy='steps', save_steps=8).train()")
    trains("import hpu_magic; resumed = make_trainer()")
    result = fitted(
        "result = hpu_magic.fit(resumed, resume_from_checkpoint=folder + '/checkpoint-8')"
    )
    assert (result.outcome, result.steps) == ("finished", 0)
    assert result.where == "before the first batch"


def test_fit_by_function_in_a_cell_is_shown_once(trains):
    cell = trains("%%hpu_fit -o kept\nimport hpu_magic\nreturned = hpu_magic.fit(make_trainer())")
    assert cell.out.count("Fit finished") == 1
    assert "saw no trainer" not in cell.out
    assert trains("kept is returned").result
    trains("del kept\nhpu_magic.fit(make_trainer())")
    assert "kept" not in trains("dir()").result


def test_overridden_dataloader_counts_as_data(trains):
    trains("import hpu_magic; own = make_trainer(data=None)")
    trains("own.get_train_dataloader = lambda: torch.utils.data.DataLoader(rows, batch_size=8)")
    assert trains("hpu_magic.fit(own).steps").result == 8


def test_nested_fit_of_the_same_trainer_is_refused(trains):
    trains("import hpu_magic; long = make_trainer([At(2, lambda: hpu_magic.fit(long))])")
    cell = trains("long_result = hpu_magic.fit(long)", fails=True)
    assert str(cell.error).startswith("A fit of this Trainer is already running with a panel: wait")


def test_method_removed_during_a_fit_stays_removed(trains):
    trains("long = make_trainer([At(2, lambda: vars(long).pop('training_step'))])")
    trains("result = %hpu_fit long")
    assert trains("result.steps, 'training_step' in vars(long)").result == (8, False)


def test_result_contains_the_time_spent_waiting_for_data(trains):
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
    observed = cell.result.observed
    assert observed.waited_seconds >= 2 * 32 * 0.02
    assert observed.waited_share > 0.5
    settings = observed.settings
    assert (observed.epochs, settings.accumulate, settings.optimizer) == (2, 2, "AdamW")
    assert (settings.precision, settings.loader.workers) == ("32-true", 0)
    assert not {"training_step", "get_batch_samples"} & set(trains("vars(slow)").result)
