"""What the live panel and its sampler take from a fit, in a real kernel.

Measured in the processor time of the whole process, which what else runs on the machine hardly
lengthens. On a machine with a second core that is more than the fit loses.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from math import sqrt
from time import monotonic, process_time

from jupyter_client.manager import start_new_kernel

from .harness import Figure, in_turn

LONGEST = 480.0  # seconds of the fit
STEPS = 200  # in a turn, half a second: five updates of the panel, give or take half a one
WARM_UP = 200
RATE = 10.0  # updates a second, the panel's own default in a fit


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
    yield Figure(f"panel at 10 Hz: share of a fit's time (±{noise:.1f})", share, "%", 1.0)
    if "trainer" in measured:
        share, noise = measured["trainer"]
        yield Figure(f"panel on transformers' Trainer: the same (±{noise:.1f})", share, "%", 1.0)
    alone, noise = measured["sampler"]
    yield Figure("sampler alone at 10 Hz (target: its noise)", alone, "%", noise)


def measure_in_kernel() -> None:
    """Measure both shares and print them as JSON; runs inside the kernel."""
    import torch

    torch.set_num_threads(1)  # a second one would wait for the first by turning in circles
    shares = {"panel": panel_share, "sampler": sampler_share}
    if find_spec("transformers") is not None:  # which wants Python 3.11
        shares["trainer"] = trainer_share
    print(json.dumps({name: share() for name, share in shares.items()}))


class Alternation:
    """Steps of one fit in turns of equal length, without the panel and with it.

    Without: its callback is taken off the Trainer and the sampler is stopped. Both kinds
    of turn therefore meet the same minute of the machine.
    """

    turn = STEPS
    warm_up = WARM_UP

    def __init__(self) -> None:
        self.seconds: dict[bool, list[float]] = {False: [], True: []}
        self._shown = True
        self._left = self.warm_up
        self._began: float | None = None

    def take_off(self, trainer) -> None:
        raise NotImplementedError

    def put_on(self, trainer) -> None:
        raise NotImplementedError

    def stepped(self, trainer) -> None:
        self._left -= 1
        if self._left:
            return
        now = process_time()
        if self._began is not None:
            self.seconds[self._shown].append(now - self._began)
        # Every second pair the other way round, so that nobody is always first.
        if self._began is None or len(self.seconds[False]) != len(self.seconds[True]):
            self._show(trainer, not self._shown)
        self._left = self.turn
        self._began = process_time()

    def _show(self, trainer, shown: bool) -> None:
        from hpu_magic.runtime.measure.sampler import sampler

        if shown:
            self.put_on(trainer)
            hidden = monotonic() - self._hidden_since
            for each in self._subscriptions:
                owner = each.callback.__self__  # what came due while it was hidden is not due yet
                for due in {"_due", "_draw_due"} & vars(owner).keys():
                    setattr(owner, due, getattr(owner, due) + hidden)
                sampler().subscribe(each.callback, each.rate)
        else:
            self.take_off(trainer)
            self._subscriptions = list(sampler()._subscriptions)
            for each in self._subscriptions:
                each.close()
            self._hidden_since = monotonic()
        self._shown = shown

    def share(self) -> tuple[float, float]:
        """Percent by which the panel lengthens a step, and the noise of that."""
        return share_and_noise(list(zip(self.seconds[False], self.seconds[True], strict=False)))


class LightningAlternation(Alternation):
    def __init__(self) -> None:
        import lightning.pytorch as lightning

        class Clock(lightning.Callback):
            def on_train_batch_end(_, trainer, *__) -> None:
                self.stepped(trainer)

        super().__init__()
        self.callback = Clock()

    def take_off(self, trainer) -> None:
        self._monitor = trainer.callbacks.pop(0)

    def put_on(self, trainer) -> None:
        trainer.callbacks.insert(0, self._monitor)


class TrainerAlternation(Alternation):
    turn = 70  # half a second too
    warm_up = 600  # the Trainer logs first after 500 steps, which adds charts

    def __init__(self) -> None:
        from transformers import TrainerCallback

        class Clock(TrainerCallback):
            def on_step_end(_, args, state, control, **__) -> None:
                self.stepped(self.trainer)
                control.should_training_stop |= monotonic() > self.ends

        super().__init__()
        self.callback = Clock()
        self.ends = monotonic() + LONGEST / 2

    def take_off(self, trainer) -> None:
        self._monitor = trainer.callback_handler.callbacks.pop()
        self._training_step = vars(trainer).pop("training_step")

    def put_on(self, trainer) -> None:
        trainer.callback_handler.callbacks.append(self._monitor)
        trainer.training_step = self._training_step


def panel_share() -> tuple[float, float]:
    """Percent by which the panel lengthens the steps of a Lightning fit, and the noise of that."""
    import lightning.pytorch as lightning
    import torch

    import hpu_magic

    from .training import mlp

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
        torch.randn(64 * STEPS, 784), torch.randint(0, 10, (64 * STEPS,))
    )
    alternation = LightningAlternation()
    trainer = lightning.Trainer(
        accelerator="hpu",
        devices=1,
        max_epochs=-1,
        max_time={"seconds": LONGEST},
        callbacks=[alternation.callback],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    data = torch.utils.data.DataLoader(samples, batch_size=64)
    # As a page has it that draws the widget: a kernel without one draws a picture more often.
    hpu_magic.fit(trainer, Classifier(), data, interval=1 / RATE, panel="widget")
    return alternation.share()


def trainer_share() -> tuple[float, float]:
    """Percent by which the panel lengthens the steps of a Trainer, and the noise of that."""
    import tempfile

    import torch
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        PrinterCallback,
        Trainer,
        TrainingArguments,
    )

    import hpu_magic

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
    alternation = TrainerAlternation()
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
            callbacks=[alternation.callback],
        )
        trainer.remove_callback(PrinterCallback)
        alternation.trainer = trainer
        hpu_magic.fit(trainer, interval=1 / RATE, panel="widget")
    return alternation.share()


def sampler_share() -> tuple[float, float]:
    """Percent that sampling alone takes from a training loop, and the noise of that."""
    from hpu_magic.runtime.measure.sampler import sampler

    from .training import MLP_BATCH, mlp, training_step

    step = training_step(mlp, MLP_BATCH, "hpu")

    def steps() -> None:
        for _ in range(STEPS):
            step()

    def sampled_steps() -> None:
        with sampler().subscribe(rate=RATE):
            steps()

    return share_and_noise(in_turn(steps, sampled_steps, 60, clock=process_time))


def share_and_noise(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Percent by which the second of each pair takes longer, and three standard errors of it.

    The mean of the middle half: what else a machine does lengthens single turns by much. Its error
    is that of a trimmed mean, from the shares whose outer quarters are drawn in to the middle half.
    """
    shares = sorted(100 * (after / before - 1) for before, after in pairs)
    cut = len(shares) // 4
    middle = shares[cut : len(shares) - cut]
    drawn_in = [min(max(one, middle[0]), middle[-1]) for one in shares]
    error = statistics.stdev(drawn_in) * len(shares) / len(middle) / sqrt(len(shares))
    return statistics.fmean(middle), 3 * error
