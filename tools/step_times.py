"""Compare the card time of steps on one simulated card with estimates.

Usage: python tools/step_times.py [--modes MODE,...] [MODEL...]

Trains and runs each model in each mode. Writes how many card times differ by at most 2 % from the
estimate, the median and the largest difference, and the steps that differ by more, into the table
in ``docs/simulator.md`` if all models run. Fails if a step differs that is not in `DIFFERENT`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT / "tests" / "estimates"), str(_ROOT / "tools")]

from differences import COLUMNS, others, row  # noqa: E402  (needs the path above)
from page_table import PageTable  # noqa: E402

if TYPE_CHECKING:
    from memory_cases import Case

MODES = ("eager", "lazy", "graphs", "compile")
KINDS = ("training", "inference")
PAGE = _ROOT / "docs" / "simulator.md"
_LAZY = ("lazy", "graphs")
_WARM_UP = 2  # steps
MODELS = (
    *("mlp sgd", "mlp autocast", "mlp bf16", "mlp small batch adam"),
    *("cnn batchnorm", "cnn groupnorm", "residual", "unet", "rnn", "gru", "lstm", "lstm cells"),
    *("transformer", "transformer encoder", "attention module", "attention masked"),
    *("attention causal", "tied", "lora", "sound", "autoencoder", "graph network"),
    *("vendor rms norm", "Llama", "GPT-2", "BERT", "T5", "ViT", "Whisper", "Mixtral"),
    *("attention plain", "attention fused", "attention dropout", "attention weights"),
    *("cnn channels last", "mlp momentum", "unet autocast", "transformer encoder autocast"),
    *("mlp small batch nadam", "mlp small batch vendor sgd"),
)
_HOST = ("Llama", "GPT-2", "BERT", "T5", "Mixtral")
DIFFERENT: dict[str, dict[str, str]] = {
    "eager": {},
    "lazy": dict.fromkeys(_HOST, "a value that the host reads splits the graph"),
    "graphs": dict.fromkeys(_HOST, "a value that the host reads cannot be captured"),
    "compile": {
        "GPT-2": "a warning about its loss divides the graph",
        **dict.fromkeys(("T5", "Whisper"), "they compute masks in another way in compiled code"),
        "cnn batchnorm": "the graph copies updated buffers",
        **dict.fromkeys(
            ("vendor rms norm", "mlp small batch vendor sgd"), "fused optimizers run in eager mode"
        ),
        "attention weights": "PyTorch removes an operator whose result is not used",
    },
}
"""Models that are known to differ in each mode, and the causes."""


def card_seconds(case: Case, mode: str) -> float:
    """Return the card time of a step after steps that compile its graphs."""
    from hpu_magic.simulator import card_time

    hpu: Any = torch.get_device_module("hpu")
    step = _step(case, mode)
    card_time.start()
    try:
        for _ in range(_WARM_UP):
            step()
        hpu.synchronize()
        before = card_time.read()
        step()
        hpu.synchronize()
        after = card_time.read()
    finally:
        card_time.stop()
    if after.unpriced:
        raise RuntimeError(f"No price for {', '.join(after.unpriced)}: {card_time.price_error()}")
    return after.card - before.card


def _step(case: Case, mode: str) -> Callable[[], None]:
    """Return a function that trains or runs the model."""
    from memory_cases import default_loss, mark

    torch.manual_seed(0)
    lazy = mode in _LAZY
    model = case.model().train(case.train).to("hpu")
    args, kwargs = tree_map_only(torch.Tensor, lambda value: value.to("hpu"), case.batch())
    optimizer = case.optimizer(model.parameters()) if case.optimizer else None

    def passes() -> Any:
        casts = torch.autocast("hpu", case.autocast) if case.autocast else nullcontext()
        with casts:
            output = model(*args, **kwargs)
        return (case.loss or default_loss)(output) if optimizer else output

    def update() -> None:
        assert optimizer is not None
        optimizer.step()

    run = [passes, update]
    if mode == "compile":
        torch._dynamo.reset()
        run = [torch.compile(each, backend="hpu_backend") for each in run]

    def infer() -> None:
        with torch.no_grad():
            output = run[0]()
            mark(lazy=lazy)
            del output

    def propagate() -> None:
        run[0]().backward()
        mark(lazy=lazy)

    def optimize() -> None:
        run[1]()
        mark(lazy=lazy)

    parts = [propagate, optimize] if optimizer else [infer]
    if mode == "graphs":
        parts = [_captured(part, model, optimizer) for part in parts]

    def step() -> None:
        for part in parts:
            part()
        # Graphs write to the same gradients in each step.
        if optimizer and mode != "graphs":
            model.zero_grad()

    return step


def _captured(
    part: Callable[[], None], model: torch.nn.Module, optimizer: Any
) -> Callable[[], None]:
    import habana_frameworks.torch as htorch

    graph = htorch.hpu.HPUGraph()
    captured = False

    def replay() -> None:
        nonlocal captured
        if not captured:
            with htorch.hpu.graph(graph):
                part()
            captured = True
        graph.replay()

    return replay


def _compare(names: list[str], mode: str) -> None:
    """Print the times of each model as JSON."""
    from memory_cases import ADAMW, CASES, estimated_seconds

    import hpu_magic.simulator

    hpu_magic.simulator.activate(announce=False)
    for name in names:
        for train in (True, False):
            case = CASES[name]
            case = replace(case, optimizer=(case.optimizer or ADAMW) if train else None)
            found: dict[str, Any] = {"model": name, "train": train}
            try:
                found["card"] = card_seconds(case, mode)
                found["estimate"] = estimated_seconds(case, mode)
            except RuntimeError as error:
                found["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
            print(json.dumps(found), flush=True)


def compared(names: list[str], mode: str) -> Iterator[dict[str, Any]]:
    """Yield the card time and the estimate of the steps of each model in a mode."""
    variables = {**os.environ, "PT_HPU_LAZY_MODE": str(int(mode in _LAZY))}
    command = [sys.executable, __file__, "--only", "--modes", mode, *names]
    with subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)


def table() -> PageTable:
    """Return the table on the page."""
    return PageTable(
        PAGE, ("steps", *COLUMNS), [f"{mode}, {kind}" for mode in MODES for kind in KINDS]
    )


def unexpected(mode: str, differences: dict[str, float]) -> list[str]:
    """Return the models that differ and are not in `DIFFERENT`."""
    return [name for name in others(differences) if name not in DIFFERENT[mode]]


def main() -> int:
    """Compare the steps on the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default=",".join(MODES), help="modes, separated by commas")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    options = parser.parse_args()
    names = options.models or list(MODELS)
    if options.only:
        _compare(names, options.modes)
        return 0
    failed = False
    for mode in options.modes.split(","):
        steps = list(compared(names, mode))
        for kind in KINDS:
            differences = {
                each["model"]: each["card"] / each["estimate"] - 1
                for each in steps
                if each["train"] is (kind == "training") and "card" in each
            }
            if not differences:
                continue
            cells = f"{mode}, {kind}", *row(differences)
            print(" | ".join(cells), flush=True)
            if names == list(MODELS):
                table().update(cells)
            for name in unexpected(mode, differences):
                failed = True
                print(
                    f"  {name} should agree, but differs by {differences[name]:+.1%}.", flush=True
                )
        for each in steps:
            if "error" in each:
                failed |= each["model"] not in DIFFERENT[mode]
                print(f"  {mode}, {each['model']}: {each['error']}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
