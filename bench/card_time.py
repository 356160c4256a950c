"""The cost of the simulated card's clock: the time of a training step with the clock on and off."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Iterator
from time import process_time

from bench.harness import Figure, fresh_process, in_turn, quiet_ratio

ON_TARGET = 1.15
OFF_TARGET = 0.5  # in percent
MODELS = (("MLP", 60), ("CNN", 30), ("transformer layer", 20))


def _training_step(model: str):
    from bench import training

    build, batch = next(
        (build, batch) for name, build, batch, _ in training.MODELS if name == model
    )
    return training.training_step(build, batch, "hpu")


def on_ratio(model: str, rounds: int) -> None:
    """Print the time of training steps with the clock on, divided by the time without it."""
    from hpu_magic.simulator import card_time

    step = _training_step(model)

    def steps() -> None:
        for _ in range(5):
            step()

    def clocked() -> None:
        card_time.start()
        steps()
        card_time.stop()

    print(quiet_ratio(in_turn(steps, clocked, rounds, clock=process_time)))


def off_percent() -> None:
    """Print an upper bound for the cost of the clock when it is off, in percent of a step.

    Operators do not contain any code for the clock. A host wait checks whether it is on; the
    measured time includes the overhead of the Python call.
    """
    from hpu_magic.simulator import card_time, engine

    step, native = _training_step("MLP"), engine.load()
    step()
    card_time.start()
    step()
    card_time.stop()
    checks = 1 + card_time.read().waits
    seconds = timeit.timeit(native.wait_for_card, number=100_000) / 100_000
    print(100 * checks * seconds / statistics.median(timeit.repeat(step, number=1)))


def figures() -> Iterator[Figure]:
    for mode, lazy in (("eager", "0"), ("lazy", "1")):
        environment = {"HPU_MAGIC_SIMULATOR": "1", "PT_HPU_LAZY_MODE": lazy}
        for model, rounds in MODELS:
            code = f"from bench.card_time import on_ratio; on_ratio({model!r}, {rounds})"
            value = float(fresh_process(code, **environment))
            yield Figure(
                f"training step, {model}, {mode}: clock on / off", value, "ratio", ON_TARGET
            )
    code = "from bench.card_time import off_percent; off_percent()"
    value = float(fresh_process(code, HPU_MAGIC_SIMULATOR="1"))
    yield Figure("clock off: share of an eager step", value, "%", OFF_TARGET)
