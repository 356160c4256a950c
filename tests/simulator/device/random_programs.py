"""Random programs have the same values, sizes and strides on the device and on the CPU.

A program is a list of steps: an operation and integers that select its operands. The same seed
always produces the same program. Programs are created on the CPU, without steps that PyTorch
rejects.

    python tests/simulator/device/random_programs.py --count 1000 --first 0

runs the programs of a range of seeds in the mode of the process (``PT_HPU_LAZY_MODE``). In lazy
mode, it also captures and replays them. It prints how to rerun a program that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator

os.environ.setdefault("HPU_MAGIC_CHECK_GEOMETRY", "1")

import torch
from program_steps import CAPTURABLE, READS, STEPS, Skip, State

from hpu_magic.simulator import activate, engine

activate(announce=False)

from habana_frameworks.torch import _bridge, hpu  # noqa: E402
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402

Step = tuple[str, int, int, int]
LONGEST = 18
ERRORS = (RuntimeError, IndexError, TypeError, ValueError, Skip)


class Mismatch(AssertionError):
    """The device and the CPU differ."""


def inputs(device: str, scale: float = 1.0) -> list[torch.Tensor]:
    """Return three tensors with exact values, for which the order of additions does not matter."""
    values = torch.arange(24, dtype=torch.float32).remainder(7).sub(3) * 0.5 * scale
    integers = torch.arange(-3, 9, dtype=torch.int32)
    return [
        values.view(4, 6).to(device),
        values[:8].clone().to(device),
        integers.view(3, 4).to(device),
    ]


@contextlib.contextmanager
def default_dtype_restored() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)


def take(state: State, step: Step) -> object:
    name, *choices = step
    return STEPS[name](state, *choices)


def make(seed: int, names: Iterable[str] = STEPS) -> list[Step]:
    """Return the program of a seed, from steps with these names that the CPU accepts."""
    chance = random.Random(seed)
    names = sorted(names)
    program: list[Step] = []
    with default_dtype_restored():
        state = State(inputs("cpu"))
        for _ in range(chance.randint(1, LONGEST)):
            step = (chance.choice(names), *(chance.randrange(1000) for _ in range(3)))
            try:
                take(state, step)
            except ERRORS:  # the step may have changed the state partly
                state = replayed(program)
                continue
            program.append(step)
    return program


def replayed(program: list[Step]) -> State:
    torch.set_default_dtype(torch.float32)
    state = State(inputs("cpu"))
    for step in program:
        take(state, step)
    return state


@contextlib.contextmanager
def all_bits() -> Iterator[None]:
    """Keep 64-bit types, unlike a card, to compare exact values."""
    native = engine.load()
    native.set_narrow_types(float64=False, int64=False, check_range=False)
    try:
        yield
    finally:
        native.set_narrow_types(*_bridge.narrow_types())


def layout(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def check_layouts(actual: State, expected: State, where: str) -> None:
    on_hpu, on_cpu = ([layout(t) for t in state.live] for state in (actual, expected))
    if on_hpu != on_cpu:
        raise Mismatch(f"sizes or strides differ {where}:\n  hpu {on_hpu}\n  cpu {on_cpu}")


def check_values(actual: State, expected: State, where: str) -> None:
    check_layouts(actual, expected, where)
    for number, (on_hpu, on_cpu) in enumerate(zip(actual.live, expected.live, strict=True)):
        copied = on_hpu.detach().cpu()
        if not torch.allclose(copied.double(), on_cpu.double(), rtol=0, atol=0, equal_nan=True):
            raise Mismatch(f"tensor {number} differs {where}:\n  hpu {copied}\n  cpu {on_cpu}")


def run(program: list[Step]) -> None:
    """Run every step on both devices and compare reads, layouts and the final values."""
    with default_dtype_restored():
        expected = State(inputs("cpu"))
        results = [take(expected, step) for step in program]
    with default_dtype_restored():
        actual, current = State(inputs("hpu")), State(inputs("cpu"))
        for step, result in zip(program, results, strict=True):
            read = take(actual, step)
            take(current, step)
            check_layouts(actual, current, f"after {step}")
            if step[0] in READS and repr(read) != repr(result):
                raise Mismatch(f"{step} read {read}, expected {result}")
    check_values(actual, expected, "at the end")


def run_captured(program: list[Step]) -> None:
    """Capture the program, replay it with other inputs, and compare each replay."""

    def work(static: list[torch.Tensor]) -> State:
        with default_dtype_restored():
            state = State([tensor.clone() for tensor in static])
            for step in program:
                take(state, step)
        return state

    static = inputs("hpu")
    graph = hpu.HPUGraph()
    with hpu.graph(graph):
        captured = work(static)
    for scale in (1.0, -0.5, 2.0):
        for tensor, value in zip(static, inputs("cpu", scale), strict=True):
            tensor.copy_(value)
        graph.replay()
        check_values(captured, work(inputs("cpu", scale)), f"after a replay with inputs * {scale}")


def run_compiled(program: list[Step]) -> None:
    """Compile the program, and compare its reads and its final values."""

    def work(tensors: list[torch.Tensor]) -> tuple[State, list[object]]:
        state = State(tensors)
        results = [take(state, step) for step in program]
        names = [name for name, *_ in program]
        return state, [each for name, each in zip(names, results, strict=True) if name in READS]

    compiled = torch.compile(work, backend="hpu_backend")
    actual, reads = compiled(inputs("hpu"))
    expected, expected_reads = work(inputs("cpu"))
    check_values(actual, expected, "at the end")
    if repr(reads) != repr(expected_reads):
        raise Mismatch(f"the program read {reads}, expected {expected_reads}")


def shortened(program: list[Step], test: Callable[[list[Step]], None]) -> list[Step]:
    """Remove the steps that the failure does not need."""
    for i in reversed(range(len(program))):
        without = program[:i] + program[i + 1 :]
        try:
            with default_dtype_restored():
                replayed(without)
        except ERRORS:
            continue
        try:
            test(without)
        except Exception:  # noqa: BLE001  (any error is a failure)
            program = without
    return program


def test_seed(seed: int) -> None:
    """Run the programs of a seed; raise an error with the shortest failing program."""
    for captured, test in [(False, run), (True, run_captured)][: 2 if is_lazy() else 1]:
        program = make(seed, CAPTURABLE if captured else STEPS)
        try:
            with warnings.catch_warnings(), all_bits():
                warnings.simplefilter("ignore")
                test(program)
        except Exception as error:
            with all_bits():
                short = shortened(program, test)
            mode = f"{'captured' if captured else 'run'} in {'lazy' if is_lazy() else 'eager'} mode"
            raise Mismatch(
                f"{error}\nseed {seed}, {mode}: {short}\nrerun: make fuzz COUNT=1 FIRST={seed}"
            ) from error


test_seed.__test__ = False  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed, began = 0, time.monotonic()
    for seed in range(options.first, options.first + options.count):
        try:
            test_seed(seed)
        except Mismatch as error:
            failed += 1
            print(f"FAILED {error}\n", flush=True)
            if failed == 20:
                break
    mode = "lazy mode and captured" if is_lazy() else "eager mode"
    count = seed + 1 - options.first
    print(
        f"{count} programs from seed {options.first} in {mode}: {failed} failed, "
        f"{time.monotonic() - began:.0f} s"
    )
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
