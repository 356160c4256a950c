"""Compare lazy mode with eager mode and graph replay with the CPU, and measure the cost of events.

A process cannot switch modes, so eager and lazy steps alternate between two processes.
"""

from __future__ import annotations

import copy
import statistics
import timeit
from collections.abc import Iterator

from bench.harness import Companion, Figure, fresh_process, in_turn, quiet_ratio, serve

LAZY_TARGET = 1.2
LAUNCH_BOUND_TARGET = 0.4  # at least 2.5 times faster
COMPUTE_BOUND_TARGET = 1.03
UNHEARD_TARGET = 0.1  # in percent; smaller than the measurement noise
LISTENING_TARGET = 1.05


def serve_steps(model: str) -> None:
    """Serve requests, each of which runs five training steps of a model in `bench.training`."""
    step = _training_step(model)

    def steps() -> None:
        for _ in range(5):
            step()

    serve(steps)


def _training_step(model: str):
    from bench import training

    build, batch = next(
        (build, batch) for name, build, batch, _ in training.MODELS if name == model
    )
    return training.training_step(build, batch, "hpu")


def replay_ratios() -> None:
    """Print graph replay times relative to the CPU, for many small and for few large operations."""
    import torch
    from habana_frameworks.torch import hpu
    from torch import nn

    small = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(20)])
    large = nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()
    )
    with torch.no_grad():
        for model, shape, rounds in ((small, (8, 16), 300), (large, (16, 16, 48, 48), 60)):
            data = torch.randn(shape)
            static = data.to("hpu")
            graph = hpu.HPUGraph()
            on_device = copy.deepcopy(model).to("hpu")
            with hpu.graph(graph):
                result = on_device(static)
            torch.testing.assert_close(result.cpu(), model(data))
            print(quiet_ratio(in_turn(lambda m=model, d=data: m(d), graph.replay, rounds)))


def listening_ratio() -> None:
    """Print the time of a lazy training step with an event listener, relative to one without."""
    from hpu_magic.simulator import engine

    step = _training_step("MLP")
    native = engine.load()

    def listened() -> None:
        native.listen(True)
        step()
        native.listen(False)

    for _ in range(5):
        step()
    print(quiet_ratio(in_turn(step, listened, 300)))


def unheard_percent() -> None:
    """Print an upper bound for the cost of events without a listener, in percent of a lazy step.

    Without a listener, an event only increments a counter. The measured time includes the overhead
    of the Python call.
    """
    from hpu_magic.simulator import engine

    step = _training_step("MLP")
    native = engine.load()

    def counted() -> int:
        return sum(counter["count"] for counter in native.counters().values())

    for _ in range(5):
        step()
    before = counted()
    step()
    events = counted() - before
    event = timeit.timeit(lambda: native.emit_compilation("graph", 0, ""), number=100_000)
    print(100 * events * event / 100_000 / statistics.median(timeit.repeat(step, number=1)))


def ledger_ratio() -> None:
    """Print the time of a lazy training step with the ledger, relative to one without.

    A typical cell runs many steps, so each ledger covers ten of them.
    """
    from hpu_magic.runtime.measure.ledger import Ledger

    step = _training_step("MLP")

    def steps() -> None:
        for _ in range(10):
            step()

    def recorded() -> None:
        with Ledger():
            steps()

    steps()
    print(quiet_ratio(in_turn(steps, recorded, 60)))


def figures() -> Iterator[Figure]:
    for model, rounds in (("MLP", 80), ("CNN", 40), ("transformer layer", 20)):
        code = f"from bench.execution import serve_steps; serve_steps({model!r})"
        eager, lazy = (Companion(code, PT_HPU_LAZY_MODE=mode) for mode in "01")
        try:
            value = quiet_ratio(in_turn(eager, lazy, rounds))
        finally:
            eager.close()
            lazy.close()
        yield Figure(f"training step, {model}: lazy / eager", value, "ratio", LAZY_TARGET)
    lazy_mode = {"HPU_MAGIC_SIMULATOR": "1", "PT_HPU_LAZY_MODE": "1"}
    small, large = map(
        float,
        fresh_process("from bench.execution import replay_ratios as r; r()", **lazy_mode).split(),
    )
    yield Figure("graph replay, 40 small operations / cpu", small, "ratio", LAUNCH_BOUND_TARGET)
    yield Figure("graph replay, large convolutions / cpu", large, "ratio", COMPUTE_BOUND_TARGET)
    for name, measure, unit, target in (
        ("event without listener: share of a lazy step", "unheard_percent", "%", UNHEARD_TARGET),
        (
            "training step, with / without event listener",
            "listening_ratio",
            "ratio",
            LISTENING_TARGET,
        ),
        ("training step, ledger on / off, lazy", "ledger_ratio", "ratio", LISTENING_TARGET),
    ):
        code = f"from bench.execution import {measure}; {measure}()"
        yield Figure(name, float(fresh_process(code, **lazy_mode)), unit, target)
