"""Test fits with a panel: results, early ends, failures and interrupts."""

import contextlib
import os
import pty
import re
import signal
import statistics
import sys
import threading

import pytest
from small_fit import SETUP, monitor_of
from started_process import wait_for


def test_fit_returns_its_result_and_prints_a_table_in_a_terminal(fits, own_card, golden):
    fits("torch.manual_seed(0); model, data = Model(), loader()")
    cell = fits("%hpu_fit -o result trainer model data")
    report = re.sub(r"Out\[\d+\]", "Out[N]", cell.out)
    report = re.sub(r"(train_loss +)\S+", r"\1LOSS", report)
    report = re.sub(r"(peak memory +)\S+ \w+", r"\1SIZE", report)
    # Short steps may wait for their batches.
    golden("fit_in_a_terminal", re.sub(r"  waiting .*\n", "", report))
    result = fits("result").result
    assert (result.outcome, result.steps, result.stopped_early) == ("finished", 8, False)
    assert result.metrics["train_loss"] > 0
    assert result.peak > 0
    assert result.steps_per_second > 0
    assert result.device == own_card


def test_cell_magic_shows_a_panel_for_each_fit(fits):
    cell = fits("%%hpu_fit -o last\ntrainer.fit(model, data)\nmake_trainer().fit(model, data)\n7")
    assert cell.out.count("Fit finished") == 2
    assert fits("last.outcome").result == "finished"
    assert fits("trainer.fit(model, data)").out.count("Fit finished") == 0


def test_cell_without_a_fit_reports_that_it_found_none(fits):
    assert "called neither trainer.fit" in fits("%%hpu_fit\n1 + 1").out


def test_result_names_the_reason_for_an_early_end(fits, own_card):
    fits("from lightning.pytorch.callbacks import EarlyStopping")
    fits("stopping = EarlyStopping('val_loss', patience=2, min_delta=1e9)")
    fits("both = (data, data)")
    fits("trainer = make_trainer(max_epochs=9, callbacks=[stopping])")
    cell = fits("%hpu_fit -o result trainer model both")
    assert f"Fit finished early on {own_card}: 3 epochs in " in cell.out
    why = "by EarlyStopping: val_loss did not improve in 2 checks."
    sentence = f"Ended in epoch 3 of 9, batch 4 of 4 {why}"
    assert sentence in cell.out
    assert fits("result.outcome").result == "finished"
    assert sentence in fits("result._repr_html_()").result

    fits("class Ends(Model):\n    def on_train_epoch_end(self): self.trainer.should_stop = True")
    fits("trainer, ends = make_trainer(max_epochs=9), Ends()")
    assert "by trainer.should_stop, which" in fits("%hpu_fit trainer ends data").out
    fits("trainer, ends = make_trainer(max_epochs=1), Ends()")
    assert "early" not in fits("%hpu_fit trainer ends data").out
    fits("trainer = make_trainer(max_epochs=-1, max_time={'seconds': 1})")
    assert "by Timer: its time is over" in fits("%hpu_fit trainer model data").out


def test_validation_loss_is_part_of_result_and_picture(fits):
    fits("pair = data, loader()\nresult = %hpu_fit trainer model pair")
    result = fits("result").result
    assert "val_loss" in result.metrics
    assert "validation" in result.picture


def test_result_contains_only_numeric_metrics(fits):
    fits(
        "class Puts(pl.Callback):\n"
        "    def on_train_epoch_end(self, trainer, module):\n"
        "        trainer.callback_metrics.update(many=torch.ones(3), text='a', one=torch.ones(1))\n"
    )
    fits("odd = make_trainer(callbacks=[Puts()])")
    ran = fits("%hpu_fit odd model data")
    assert sorted(ran.result.metrics) == ["one", "train_loss"]


def test_fit_restores_the_trainers_callbacks_and_progress_bar(fits):
    fits("before = list(trainer.callbacks)")
    fits("%hpu_fit trainer model data")
    assert fits("trainer.callbacks == before").result
    assert fits("trainer.progress_bar_callback.is_enabled").result


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%hpu_fit", "needs a Trainer"),
        ("%hpu_fit trainer", "fit needs a LightningModule to train, but got None"),
        ("%hpu_fit trainer model data data", "does not take 'data'"),
        ("%hpu_fit trainr model", "Unknown variable 'trainr': did you mean 'trainer'"),
        (
            "%hpu_fit model trainer",
            "The first argument must be a Lightning or transformers Trainer",
        ),
        ("%hpu_fit trainer data", "fit needs a LightningModule to train, but got a DataLoader"),
        ("%hpu_fit trainer model --interval 0", "must be between 0.02 and 60 seconds, got 0"),
        ("%hpu_fit trainer model --fast", "no option '--fast'"),
        ("%%hpu_fit trainer\npass", "does not take the argument 'trainer'"),
    ],
)
def test_invalid_arguments_raise_usage_errors(fits, rejected, line, sentence):
    assert sentence in rejected(line)


def test_stop_takes_effect_before_the_next_report(fits, shell):
    class Press(shell.user_ns["pl"].Callback):
        at = None

        def on_train_batch_start(self, trainer, *_):
            monitor = monitor_of(trainer)
            if self.at is None and monitor.on_train_batch_end is None:
                self.at = trainer.global_step
                monitor.stop()

    press = shell.user_ns["press"] = Press()
    fits(
        "long = make_trainer(max_epochs=100_000, min_epochs=90_000, callbacks=[press],\n"
        "    max_time={'seconds': 20})"
    )
    fits("result = %hpu_fit --interval 0.5 long model data")
    result = fits("result").result
    assert press.at is not None
    assert (result.outcome, result.stopped_early, result.steps) == ("stopped", True, press.at + 1)
    assert fits("long.fit_loop.min_epochs").result == 90_000


def test_interrupted_fit_frees_its_memory_and_keeps_the_device_usable(fits, shell, torch, own_card):
    before = torch.hpu.memory_allocated()

    class Interrupt(shell.user_ns["pl"].Callback):
        def on_train_batch_start(self, trainer, *_):
            if trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGINT)

    shell.user_ns["interrupt"] = Interrupt()
    fits("long = make_trainer(max_epochs=1000, callbacks=[interrupt])")
    handler = signal.getsignal(signal.SIGINT)
    cell = fits("%hpu_fit long model data", fails=True)
    assert isinstance(cell.error, KeyboardInterrupt)
    assert f"Fit interrupted on {own_card} in epoch 1 of 1000" in cell.out
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.hpu.memory_allocated() == before
    fits("%hpu_fit trainer model data")


def test_out_of_memory_fit_frees_its_memory_and_keeps_the_device_usable(fits, torch, own_card):
    before = torch.hpu.memory_allocated()
    fits(
        """
        class Greedy(Model):
            def on_train_start(self):
                self.kept = []
            def training_step(self, batch, index):
                self.kept.append(batch[0] * 2)
                if self.global_step == 3:
                    self.kept.append(torch.empty(1 << 40, dtype=torch.uint8, device="hpu"))
                return super().training_step(batch, index)
        greedy = Greedy()
        """
    )
    cell = fits(
        "try:\n    %hpu_fit trainer greedy data\nexcept RuntimeError as full: error = str(full)"
    )
    assert f"Fit failed on {own_card} in epoch 1 of 2, batch 4 of 4" in cell.out
    assert "Allocation failed for size::1099511627776" in fits("error").result
    assert fits("{str(p.device) for p in greedy.parameters()}").result == {"cpu"}
    fits("import gc; gc.collect()")  # tensors in the frames of the traceback
    kept = fits("sum(tensor.nbytes for tensor in greedy.kept)").result
    assert torch.hpu.memory_allocated() - before == kept > 0
    fits("greedy.kept.clear()")
    assert torch.hpu.memory_allocated() == before
    fits("%hpu_fit trainer model data")


def test_frequent_validations_do_not_prevent_reports_of_losses(fits, shell):
    from hpu_magic.runtime.training.sampler import sampler

    losses, paces = sampler().cursor("train"), sampler().cursor("speed")
    fits("many = make_trainer(max_epochs=100_000, max_time={'seconds': 3})")
    fits("import hpu_magic; model.val_dataloader = loader")
    fits("result = hpu_magic.fit(many, model, data, interval=0.5)")
    result = fits("result").result
    epochs = result.steps / 4  # with one validation each
    assert epochs > result.seconds / 0.5
    assert "val_loss" in result.metrics
    read, _ = sampler().read("train", losses)
    paced, _ = sampler().read("speed", paces)
    assert len(read["time"]) >= 4
    assert read["time"][-1] - read["time"][0] > 1
    # If the machine is slow for a moment, one value is lower; a wrong count would lower all values.
    assert statistics.median(paced["steps_per_second"]) > 0.2 * result.steps_per_second


def test_fit_call_inside_a_fit_cell_shows_one_panel(fits):
    cell = fits("%%hpu_fit\nimport hpu_magic\nhpu_magic.fit(trainer, model, data)\nNone")
    assert cell.out.count("Fit finished") == 1


def test_sampler_thread_ends_after_the_fit(fits):
    fits("%hpu_fit trainer model data")
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "hpu-sampler"])


def test_script_without_a_terminal_prints_only_the_table(forked_script):
    program = f"import hpu_magic.lightning\n{SETUP}\nimport hpu_magic\n"
    program += "hpu_magic.fit(trainer, model, data)"
    printed = forked_script(program, hides_torch=True, HLS_MODULE_ID="5")
    assert printed.startswith("Fit finished on HPU 5 (simulated GAUDI2)")
    assert "\r" not in printed


def test_terminal_shows_one_progress_line_with_the_remaining_time(forked_python, tmp_path):
    slow = """
import time
class Slow(pl.Callback):
    def on_train_batch_end(self, *step):
        time.sleep(0.4)
trainer.callbacks.append(Slow())
hpu_magic.fit(trainer, model, data)
"""
    program = f"import hpu_magic.lightning\n{SETUP}\nimport hpu_magic\n{slow}"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", program]
    with (tmp_path / "errors").open("wb") as errors:
        fit = forked_python.popen(
            command, env=os.environ, stdout=theirs, stderr=errors, hides_torch=True
        )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # raised when the other end is closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert fit.wait(180) == 0, (tmp_path / "errors").read_text()
    progress, table = shown.decode().split("Fit finished on HPU ")
    assert re.search(r"\rTraining Model: epoch 1 of 2, .*about \d+ s left", progress), progress
    assert progress.endswith("\r")
    assert "\n" not in progress
    assert "\r" not in table.replace("\r\n", "\n")
