"""Overhead of the live panel and its sampler in a real kernel, in percent of a fit's time.

The difference between runs with and without the panel is within the noise, even after many minutes.
Therefore, the panel's CPU time is measured directly: the time spent in its hooks, including the
framework's calls to them, and the time of the kernel's other threads, which collect samples and
send them. The two clock reads that time the fit's loader are not included. On a machine with
several cores, the actual loss is smaller.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import sqrt
from pathlib import Path
from time import monotonic, process_time, thread_time
from typing import Any

from jupyter_client.manager import start_new_kernel

from bench.harness import Figure

TURNS = 10
TURN = 3.0  # CPU time in seconds
WARM_UP = 200  # steps
LONGEST = 120.0  # maximum duration of a fit on a busy machine, in seconds
RATE = 10.0  # updates per second; the panel's default


def figures() -> Iterator[Figure]:
    manager, client = start_new_kernel(extra_arguments=["--log-level=ERROR"])
    lines: list[str] = []

    def output(message: dict) -> None:
        content = message["content"]
        if message["msg_type"] == "stream" and content["name"] == "stdout":
            lines.append(content["text"])
        elif message["msg_type"] == "error":
            raise RuntimeError("\n".join(content["traceback"]))

    try:
        code = "%load_ext hpu_magic\nfrom bench import panel\npanel.measure_in_kernel()"
        client.execute_interactive(code, output_hook=output)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    measured = json.loads("".join(lines).splitlines()[-1])
    share, noise = measured["panel"]
    yield Figure(f"panel at 10 Hz: share of a fit's time (±{noise:.2f})", share, "%", 1.0)
    if "trainer" in measured:
        share, noise = measured["trainer"]
        name = f"panel on transformers' Trainer: share of the run time (±{noise:.2f})"
        yield Figure(name, share, "%", 1.0)
    alone, noise = measured["sampler"]
    yield Figure(f"sampler alone at 10 Hz (±{noise:.2f})", alone, "%", 0.5)


def measure_in_kernel() -> None:
    """Measure the overheads in the kernel, and print them as JSON."""
    import torch

    torch.set_num_threads(1)  # a second thread would busy-wait for the first
    shares = {"panel": panel_share, "sampler": sampler_share}
    if find_spec("transformers") is not None:  # which requires Python 3.11
        shares["trainer"] = trainer_share
    print(json.dumps({name: share() for name, share in shares.items()}))


class Account:
    """Measures the CPU time of a fit and the panel's share of it, in rounds of equal length."""

    def __init__(self, warm_up: int) -> None:
        self.spent = 0.0  # seconds in the panel's hooks
        self.ends = monotonic() + LONGEST
        self._left = warm_up  # steps
        self._times: list[tuple[float, float, float]] = []  # elapsed, process and panel

    def markers(self, base: type[Any]) -> tuple[Any, Any, Any]:
        """Return three callbacks: the first runs twice before the panel's, the others after it.

        A training step evicts data from the CPU caches, so the first call is slower, and only the
        second call counts. The time from the first to the second callback covers the panel's hook
        and two calls; the time from the second to the third covers one call.
        """

        def began(*_: Any, **__: Any) -> None:
            self._began = thread_time()

        def ended(*_: Any, **__: Any) -> None:
            self._ended = thread_time()

        def compared(*_: Any, **__: Any) -> None:
            self.spent += 2 * self._ended - self._began - thread_time()

        hooks = [name for name in dir(base) if name.startswith("on_")]
        self._began = self._ended = 0.0
        before, after, reference = (
            type("Marker", (base,), dict.fromkeys(hooks, hook))()
            for hook in (began, ended, compared)
        )
        return before, after, reference

    def counted(self, method: Callable[..., Any], sign: int) -> Callable[..., Any]:
        """Wrap a method so that its time is added to or subtracted from the panel's time."""

        def run(*arguments: Any, **options: Any) -> Any:
            began = thread_time()
            try:
                return method(*arguments, **options)
            finally:
                self.spent += sign * (thread_time() - began)

        return run

    def stepped(self) -> bool:
        """Record the times at the end of each round, and return whether all rounds are complete."""
        self._left -= 1
        if self._left > 0:
            return False
        now = process_time()
        if not self._times or now > self._times[-1][1] + TURN:
            self._times.append((monotonic(), now, self.spent + other_threads()))
        return len(self._times) > TURNS or (len(self._times) > 2 and monotonic() > self.ends)

    def share(self) -> tuple[float, float]:
        """Return the panel's overhead in percent, and three times its standard error.

        Samples are taken at a fixed rate of elapsed time. If other processes use the CPU, there are
        more samples per second of the fit's CPU time, so the result is corrected for that.
        """
        shares = []
        for begin, end in zip(self._times, self._times[1:], strict=False):
            clock, process, panel = (
                after - before for before, after in zip(begin, end, strict=True)
            )
            shares.append(100 * panel / (process - panel) * min(1.0, process / clock))
        return statistics.fmean(shares), 3 * statistics.stdev(shares) / sqrt(len(shares))


def other_threads() -> float:
    """Return the CPU time of all threads except the main thread and autograd's threads."""
    spent = 0
    for thread in Path("/proc/self/task").iterdir():
        is_autograd = (thread / "comm").read_text().startswith("pt_")
        if thread.name != str(os.getpid()) and not is_autograd:
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def is_panel(callback: Any) -> bool:
    return type(callback).__name__ == "FitMonitor"


def panel_share() -> tuple[float, float]:
    """Return the panel's overhead on a Lightning fit in percent, and its noise."""
    import lightning.pytorch as lightning
    import torch

    import hpu_magic
    from bench.training import mlp

    account = Account(WARM_UP)

    class Clock(lightning.Callback):
        def on_train_start(self, trainer, _) -> None:
            before, *after = account.markers(lightning.Callback)
            panel, *others = trainer.callbacks
            assert is_panel(panel)
            trainer.callbacks = [before, before, panel, *after, *others]

        def on_train_batch_end(self, trainer, *_) -> None:
            trainer.should_stop |= account.stepped()

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = mlp()

        def training_step(self, batch, _):
            inputs, labels = batch
            loss = torch.nn.functional.cross_entropy(self.model(inputs), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    samples = torch.utils.data.TensorDataset(
        torch.randn(64 * 200, 784), torch.randint(0, 10, (64 * 200,))
    )
    trainer = lightning.Trainer(
        accelerator="hpu",
        devices=1,
        max_epochs=-1,
        callbacks=[Clock()],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    data = torch.utils.data.DataLoader(samples, batch_size=64)
    # The widget is redrawn at this rate while a page displays it, and more often otherwise.
    hpu_magic.fit(trainer, Classifier(), data, interval=1 / RATE, panel="widget")
    return account.share()


def trainer_share() -> tuple[float, float]:
    """Return the panel's overhead on transformers' Trainer in percent, and its noise."""
    import tempfile

    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        PrinterCallback,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    import hpu_magic

    account = Account(600)  # the first log, after 500 steps, adds charts

    class Clock(TrainerCallback):
        def on_train_begin(self, args, state, control, **_) -> None:
            callbacks = trainer.callback_handler.callbacks
            before, *after = account.markers(TrainerCallback)
            assert is_panel(callbacks[-1])
            callbacks[-1:] = [before, before, callbacks[-1], *after]
            trainer.training_step = account.counted(trainer.training_step, 1)

        def on_step_end(self, args, state, control, **_) -> None:
            control.should_training_stop |= account.stepped()

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=500,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=32,
    )
    rows = [
        {"input_ids": torch.randint(0, 500, (32,)), "labels": torch.tensor(row % 2)}
        for row in range(2048)
    ]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=8,
            max_steps=10**6,
            disable_tqdm=True,
            save_strategy="no",
            report_to=[],
        )
        trainer = Trainer(
            BertForSequenceClassification(config),
            arguments,
            train_dataset=rows,
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)
        # Subtract the time of the step, because the panel's method calls it.
        trainer.training_step = account.counted(trainer.training_step, -1)
        hpu_magic.fit(trainer, interval=1 / RATE, panel="widget")
    return account.share()


def sampler_share() -> tuple[float, float]:
    """Return the sampler's overhead on a training loop in percent, and its noise."""
    from bench.training import MLP_BATCH, mlp, training_step
    from hpu_magic.runtime.training.sampler import sampler

    step, account = training_step(mlp, MLP_BATCH, "hpu"), Account(WARM_UP)
    with sampler().subscribe(rate=RATE):
        while not account.stepped():
            step()
    return account.share()
