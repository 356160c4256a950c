"""What the live panel and its sampler take from a fit, in a real kernel."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from math import sqrt
from time import perf_counter

from jupyter_client.manager import start_new_kernel

from .harness import FEWEST_ROUNDS, Figure, in_turn

FITS = 24
LONGEST = 90.0  # seconds for all fits on a machine that is busy otherwise
STEPS = 300
WARM_UP = 50
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
    share = Figure("panel at 10 Hz: share of fit throughput", measured["panel"], "%", 1.0)
    alone = Figure("sampler alone at 10 Hz (target: its noise)", *measured["sampler"])
    yield from (share, alone)


def measure_in_kernel() -> None:
    """Measure both shares and print them as JSON; runs inside the kernel."""
    print(json.dumps({"panel": panel_share(), "sampler": sampler_share()}))


def panel_share() -> float:
    """Percent by which steps of a Lightning fit take longer under the panel."""
    import hpu_magic

    def plain(trainer, model, data) -> None:
        trainer.fit(model, data)

    def shown(trainer, model, data) -> None:
        hpu_magic.fit(trainer, model, data, interval=1 / RATE)

    for fit in (plain, shown):
        fit_seconds(fit)
    ratios = []
    end = perf_counter() + LONGEST
    while len(ratios) < FITS and (perf_counter() < end or len(ratios) < FEWEST_ROUNDS):
        order = (plain, shown) if len(ratios) % 2 else (shown, plain)
        taken = {fit: fit_seconds(fit) for fit in order}
        ratios.append(taken[shown] / taken[plain])
    return 100 * (statistics.median(ratios) - 1)


def fit_seconds(fit) -> float:
    """Seconds from the end of the warm-up to the last step of one Lightning fit."""
    import lightning.pytorch as lightning
    import torch

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

    class Clock(lightning.Callback):
        started = ended = 0.0

        def on_train_batch_end(self, trainer, *_) -> None:
            if trainer.global_step == WARM_UP:
                self.started = perf_counter()
            self.ended = perf_counter()

    clock = Clock()
    torch.manual_seed(0)
    samples = torch.utils.data.TensorDataset(
        torch.randn(64 * STEPS, 784), torch.randint(0, 10, (64 * STEPS,))
    )
    trainer = lightning.Trainer(
        accelerator="hpu",
        devices=1,
        max_epochs=1,
        callbacks=[clock],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=False,
    )
    fit(trainer, Classifier(), torch.utils.data.DataLoader(samples, batch_size=64))
    return clock.ended - clock.started


def sampler_share() -> tuple[float, str, float]:
    """Percent that sampling alone takes from a training loop, its unit and twice its noise."""
    from hpu_magic.runtime.sampler import sampler

    from .training import MLP_BATCH, mlp, training_step

    step = training_step(mlp, MLP_BATCH, "hpu")

    def steps() -> None:
        for _ in range(50):
            step()

    def sampled_steps() -> None:
        with sampler().subscribe(rate=RATE):
            steps()

    shares = [100 * (sampled / plain - 1) for plain, sampled in in_turn(steps, sampled_steps, 60)]
    lower, middle, upper = statistics.quantiles(shares, n=4)
    # Standard error of a median, the spread taken from the quartiles.
    noise = 1.2533 * (upper - lower) / 1.349 / sqrt(len(shares))
    return middle, "%", 2 * noise
