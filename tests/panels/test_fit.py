"""Fits with a panel: results, the early end, failures and interrupts."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from small_fit import SETUP


def test_line_form_returns_the_result(fits: Callable[[str], Any], own_card: str) -> None:
    cell = fits("result = %hpu_fit trainer model data")
    assert cell.error is None
    result = fits("result").result
    assert (result.outcome, result.steps, result.stopped_early) == ("finished", 8, False)
    assert result.metrics["train_loss"] > 0
    assert result.peak > 0
    assert result.steps_per_second > 0
    assert result.device == own_card


def test_table_ends_the_fit_in_a_terminal(fits: Callable[[str], Any], own_card: str) -> None:
    out = fits("%hpu_fit trainer model data").out
    assert out.count(f"Fit finished on {own_card}") == 1
    assert "peak memory" in out
    assert "steps/s" in out


def test_what_the_line_form_returns_in_a_terminal_is_named_and_not_shown_twice(
    fits: Callable[[str], Any],
) -> None:
    out = fits("%hpu_fit trainer model data").out
    shown, prompt, value = out.rpartition("]: ")
    assert prompt
    assert "Out[" in shown
    assert value.strip() == "FitResult, finished: the figures above are its attributes."
    assert fits("_.outcome").result == "finished"


def test_cell_form_gives_every_fit_its_panel(fits: Callable[[str], Any]) -> None:
    cell = fits("%%hpu_fit -o last\ntrainer.fit(model, data)\nmake_trainer().fit(model, data)\n7")
    assert cell.error is None
    assert cell.out.count("Fit finished") == 2
    assert fits("last.outcome").result == "finished"
    assert fits("trainer.fit(model, data)").out.count("Fit finished") == 0


def test_cell_without_a_fit_says_so(fits: Callable[[str], Any]) -> None:
    assert "found neither trainer.fit" in fits("%%hpu_fit\n1 + 1").out


def test_what_ends_a_fit_before_its_plan_is_named(
    fits: Callable[[str], Any], own_card: str
) -> None:
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


def test_validation_loss_is_in_the_result_and_in_the_picture(fits: Callable[[str], Any]) -> None:
    fits("result = %hpu_fit trainer model pair" if fits("pair = data, loader()") else "")
    result = fits("result").result
    assert "val_loss" in result.metrics
    assert "validation" in result.picture


def test_metrics_that_are_no_numbers_are_not_in_the_result(fits: Callable[[str], Any]) -> None:
    fits(
        "class Puts(pl.Callback):\n"
        "    def on_train_epoch_end(self, trainer, module):\n"
        "        trainer.callback_metrics.update(many=torch.ones(3), text='a', one=torch.ones(1))\n"
    )
    assert fits("odd = make_trainer(callbacks=[Puts()])").error is None
    ran = fits("%hpu_fit odd model data")
    assert ran.error is None
    assert sorted(ran.result.metrics) == ["one", "train_loss"]


def test_panel_is_removed_from_the_trainer(fits: Callable[[str], Any]) -> None:
    fits("before = list(trainer.callbacks)")
    fits("%hpu_fit trainer model data")
    assert fits("trainer.callbacks == before").result
    assert fits("trainer.progress_bar_callback.is_enabled").result


def test_function_twin_fits(fits: Callable[[str], Any]) -> None:
    assert fits("import hpu_magic; r = hpu_magic.fit(trainer, model, data)").error is None
    assert fits("r.outcome").result == "finished"


def test_fit_on_the_cpu_shows_no_device_memory(fits: Callable[[str], Any]) -> None:
    fits("cpu = make_trainer(accelerator='cpu')\nresult = %hpu_fit cpu model data")
    result = fits("result").result
    assert (result.device, result.peak) == ("cpu", None)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%hpu_fit", "needs a Trainer"),
        ("%hpu_fit trainer", "fit needs a LightningModule to train, not None"),
        ("%hpu_fit trainer model data data", "does not take 'data'"),
        ("%hpu_fit trainr model", "Unknown variable 'trainr': did you mean 'trainer'"),
        (
            "%hpu_fit model trainer",
            "The first argument must be a Lightning or transformers Trainer",
        ),
        ("%hpu_fit trainer data", "fit needs a LightningModule to train, not a DataLoader"),
        ("%hpu_fit trainer model --interval 0", "must be 0.02 to 60 seconds, got 0"),
        ("%hpu_fit trainer model --fast", "no option '--fast'"),
        ("%%hpu_fit trainer\npass", "does not take 'trainer'"),
    ],
)
def test_wrong_input_gets_one_sentence(
    fits: Callable[[str], Any], line: str, sentence: str
) -> None:
    cell = fits(line)
    assert type(cell.error).__name__ == "UsageError"
    assert sentence in str(cell.error)
    assert "Traceback" not in cell.out + cell.err


def test_failure_names_the_step_and_keeps_the_users_traceback(
    fits: Callable[[str], Any], own_card: str
) -> None:
    cell = fits("%hpu_fit trainer Broken data" if fits("Broken = Model(fail_at=5)") else "")
    assert isinstance(cell.error, ValueError)
    assert f"Fit failed on {own_card} in epoch 2 of 2, batch 2 of 4" in cell.out
    assert "ValueError: the data is broken" in cell.out
    assert fits("import hpu_magic; hpu_magic.fit(trainer, Model(), data).outcome").error is None


def test_stop_ends_the_fit_after_the_current_batch(fits: Callable[[str], Any], shell: Any) -> None:
    from hpu_magic.lightning.fit.monitor import LightningMonitorBase

    def press_at_step_five(monitor: Any) -> None:
        class Press(shell.user_ns["pl"].Callback):  # type: ignore[name-defined]
            def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
                if trainer.global_step == 5:
                    found = [c for c in trainer.callbacks if isinstance(c, LightningMonitorBase)]
                    found[0].stop()

        shell.user_ns["press"] = Press()

    press_at_step_five(None)
    fits("long = make_trainer(max_epochs=1000, min_epochs=900, callbacks=[press])")
    fits("result = %hpu_fit long model data")
    result = fits("result").result
    assert (result.outcome, result.stopped_early, result.steps) == ("stopped", True, 6)
    assert result.where == "epoch 2 of 1000, batch 2 of 4"
    assert fits("long.fit_loop.min_epochs").result == 900


def test_stop_is_heard_at_once_though_the_next_report_is_far(
    fits: Callable[[str], Any], shell: Any
) -> None:
    from hpu_magic.lightning.fit.monitor import LightningMonitorBase

    class Press(shell.user_ns["pl"].Callback):  # type: ignore[name-defined]
        at = None

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            [monitor] = [c for c in trainer.callbacks if isinstance(c, LightningMonitorBase)]
            if self.at is None and monitor.on_train_batch_end is None:
                self.at = trainer.global_step
                monitor.stop()

    press = shell.user_ns["press"] = Press()
    fits("long = make_trainer(max_epochs=100_000, callbacks=[press], max_time={'seconds': 20})")
    fits("result = %hpu_fit --interval 0.5 long model data")
    result = fits("result").result
    assert press.at is not None
    assert (result.outcome, result.steps) == ("stopped", press.at + 1)


def test_interrupt_releases_the_memory_and_leaves_the_device_usable(
    fits: Callable[[str], Any], shell: Any, torch: Any, own_card: str
) -> None:
    before = torch.hpu.memory_allocated()

    class Interrupt(shell.user_ns["pl"].Callback):  # type: ignore[name-defined]
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 3:
                os.kill(os.getpid(), signal.SIGINT)

    shell.user_ns["interrupt"] = Interrupt()
    fits("long = make_trainer(max_epochs=1000, callbacks=[interrupt])")
    handler = signal.getsignal(signal.SIGINT)
    cell = fits("%hpu_fit long model data")
    assert isinstance(cell.error, KeyboardInterrupt)
    assert f"Fit interrupted on {own_card} in epoch 1 of 1000" in cell.out
    assert signal.getsignal(signal.SIGINT) is handler
    assert torch.hpu.memory_allocated() == before
    assert fits("%hpu_fit trainer model data").error is None


def test_a_full_card_releases_the_memory_and_leaves_the_device_usable(
    fits: Callable[[str], Any], torch: Any, own_card: str
) -> None:
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
        "try:\n    %hpu_fit trainer greedy data\nexcept RuntimeError as full: said = str(full)"
    )
    assert f"Fit failed on {own_card} in epoch 1 of 2, batch 4 of 4" in cell.out
    said = fits("said").result
    assert "MODULE:PT_DEVMEM Allocation failed for size::1099511627776" in said
    assert fits("{str(p.device) for p in greedy.parameters()}").result == {"cpu"}
    fits("import gc; gc.collect()")  # what the error's traceback held
    kept = fits("sum(one.nbytes for one in greedy.kept)").result
    assert torch.hpu.memory_allocated() - before == kept > 0
    fits("greedy.kept.clear()")
    assert torch.hpu.memory_allocated() == before
    assert fits("%hpu_fit trainer model data").error is None


def test_losses_are_read_at_the_panels_rate_not_at_every_step(
    fits: Callable[[str], Any], shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpu_magic.lightning.fit import monitor
    from hpu_magic.runtime.training.logged_values import FIRST_STEPS
    from hpu_magic.runtime.training.sampler import sampler

    # However slow this machine is just now: of a slow fit, every step is heard.
    monkeypatch.setattr(monitor, "_SLOW", 0)
    start = sampler().cursor("train")
    fits("many = make_trainer(max_epochs=100)\nresult = %hpu_fit --interval 1 many model data")
    result = fits("result").result
    assert result.steps == 400
    reads = sampler().cursor("train") - start
    assert FIRST_STEPS <= reads <= FIRST_STEPS + math.ceil(result.seconds) + 1


def test_losses_are_read_though_validations_come_faster_than_the_panels_rate(
    fits: Callable[[str], Any], shell: Any
) -> None:
    from hpu_magic.runtime.training.sampler import sampler

    losses, paces = sampler().cursor("train"), sampler().cursor("speed")
    fits("many = make_trainer(max_epochs=100_000, max_time={'seconds': 3})")
    fits("import hpu_magic; model.val_dataloader = loader")
    fits("result = hpu_magic.fit(many, model, data, interval=0.5)")
    result = fits("result").result
    validations = result.steps / 4  # one an epoch
    assert validations > result.seconds / 0.5
    assert "val_loss" in result.metrics
    read, _ = sampler().read("train", losses)
    paced, _ = sampler().read("speed", paces)
    assert len(read["time"]) >= 4
    assert read["time"][-1] - read["time"][0] > 1
    # A machine that stalls for a moment lowers one reading; a wrong count would lower them all.
    assert statistics.median(paced["steps_per_second"]) > 0.2 * result.steps_per_second


def test_nested_observation_shows_one_panel(fits: Callable[[str], Any]) -> None:
    cell = fits("import hpu_magic")
    cell = fits("%%hpu_fit\nhpu_magic.fit(trainer, model, data)\nNone")
    assert cell.out.count("Fit finished") == 1


def test_no_thread_stays_behind(fits: Callable[[str], Any]) -> None:
    fits("%hpu_fit trainer model data")
    deadline = threading.Event()
    for _ in range(100):
        if not [t for t in threading.enumerate() if t.name == "hpu-sampler"]:
            break
        deadline.wait(0.05)
    assert not [t for t in threading.enumerate() if t.name == "hpu-sampler"]


def test_script_prints_only_the_table_where_there_is_no_terminal() -> None:
    program = f"import hpu_magic.lightning\n{SETUP}\nimport hpu_magic\n" + (
        "hpu_magic.fit(trainer, model, data)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HLS_MODULE_ID": "5"},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert done.stdout.startswith("Fit finished on HPU 5 (simulated GAUDI2)")
    assert "\r" not in done.stdout


def test_terminal_shows_one_line_of_progress_with_the_time_left() -> None:
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
    fit = subprocess.Popen([sys.executable, "-c", program], stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # raised where the other end is closed
        while piece := os.read(ours, 65536):
            shown += piece
    os.close(ours)
    assert fit.wait(180) == 0, fit.stderr.read().decode()
    progress, table = shown.decode().split("Fit finished on HPU ")
    assert re.search(r"\rTraining Model: epoch 1 of 2, .*about \d+ s left", progress), progress
    assert progress.endswith("\r")
    assert "\n" not in progress
    assert "\r" not in table.replace("\r\n", "\n")
