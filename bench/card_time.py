"""The cost of the simulated card's clock: the time of a training step with the clock on and off."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterator
from time import process_time
from typing import TYPE_CHECKING

from bench.harness import Figure, fresh_process, in_turn, quiet_ratio

if TYPE_CHECKING:
    import torch

ON_TARGET = 1.15
GRAPH_TARGET = 1.05
OFF_TARGET = 0.5  # in percent
MODELS = (("MLP", 60), ("CNN", 30), ("transformer layer", 20))


def _model(name: str):
    from bench import training

    return next((build, batch) for each, build, batch, _ in training.MODELS if each == name)


def _training_step(model: str) -> Callable[[], float]:
    from bench import training

    return training.training_step(*_model(model), "hpu")


def _step_of_graphs(model: str, *, compiled: bool) -> Callable[[], float]:
    """Return a training step that runs as compiled graphs, or as the replay of one HPU Graph."""
    import torch
    from habana_frameworks.torch import hpu

    torch.manual_seed(0)
    build, batch = _model(model)
    module = build().to("hpu")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    inputs = torch.randn(batch).to("hpu")
    labels = torch.randint(0, 10, batch[:1]).to("hpu")

    def forward() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(module(inputs), labels)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    if compiled:
        forward = torch.compile(forward, backend="hpu_backend")
        update = torch.compile(update, backend="hpu_backend")

    def step() -> torch.Tensor:
        loss = forward()
        loss.backward()
        update()
        return loss.detach()

    for _ in range(3):
        step()
    if compiled:
        return lambda: step().item()
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        loss = step()

    def replay() -> float:
        graph.replay()
        return loss.item()

    return replay


def on_ratio(model: str, rounds: int, kind: str = "") -> None:
    """Print the time of training steps with the clock on, divided by the time without it.

    ``kind`` is ``compiled`` or ``captured``, or empty for a step in the mode of the process.
    """
    from hpu_magic.simulator import card_time

    card_time.start()
    step = _step_of_graphs(model, compiled=kind == "compiled") if kind else _training_step(model)
    card_time.stop()

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

    Operators do not contain any code for the clock. A host wait checks whether the clock is on; the
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
    for kind, lazy, target in (
        ("eager", "0", ON_TARGET),
        ("lazy", "1", ON_TARGET),
        ("compiled", "0", GRAPH_TARGET),
        ("captured", "1", GRAPH_TARGET),
    ):
        environment = {"HPU_MAGIC_SIMULATOR": "1", "PT_HPU_LAZY_MODE": lazy}
        of_graphs = kind if target == GRAPH_TARGET else ""
        for model, rounds in MODELS:
            code = (
                f"from bench.card_time import on_ratio as r; r({model!r}, {rounds}, {of_graphs!r})"
            )
            value = float(fresh_process(code, **environment))
            yield Figure(f"training step, {model}, {kind}: clock on / off", value, "ratio", target)
    code = "from bench.card_time import off_percent; off_percent()"
    value = float(fresh_process(code, HPU_MAGIC_SIMULATOR="1"))
    yield Figure("clock off: share of an eager step", value, "%", OFF_TARGET)
