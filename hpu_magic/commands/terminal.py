"""The command ``hpu-magic estimate``, with the options of both estimate functions."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from hpu_magic.commands import planning
from hpu_magic.commands.declaration import CommandDeclaration
from hpu_magic.errors import HPUError

_TEXTS = {
    "model": "module:callable that creates the model, or the path of a transformers "
    "configuration (folder or JSON file); weights are not loaded",
    "inputs": "shapes and dtypes of the model's arguments, such as 8x512:int64 (float32 by "
    "default) or, by name, mask=8x512:bool",
    "train": "estimate a training step; --no-train estimates a forward pass",
    "mode": "the execution mode (eager by default; graphs for text generation)",
    "dtype": "the precision (by default, the dtype of the parameters; bf16 for text generation)",
    "batch": "batch size per card, or largest",
    "loss": "module:callable that computes the loss from the output",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser."""
    command = commands.add_parser(
        "estimate",
        help="estimate the time and memory of a model without a card",
        description="Estimate the time and memory of a model on Gaudi cards, without a card or any "
        "computation: for a training step, a forward pass (--no-train), or text generation "
        "(--prompt and --new-tokens). Each value has a band that is based on published "
        "measurements.",
        epilog="Examples: hpu-magic estimate models:make --inputs 8x3x224x224; "
        "hpu-magic estimate ./config.json --inputs 8x512:int64 --cards 8 --parallel zero3; "
        "hpu-magic estimate ./config.json --prompt 1024 --new-tokens 256 --batch largest --json",
    )
    step, generation = _declarations()
    step.add_to(command, texts=_TEXTS, only_passed=True)
    group = command.add_argument_group("text generation")
    generation.add_to(group, skip=step.names, only_passed=True)
    command.add_argument("--json", action="store_true", help="print the values as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    passed = {name: value for name, value in vars(options).items() if name not in ("run", "json")}
    try:
        result = _estimate(passed)
    except HPUError as error:
        print(f"hpu-magic: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result.to_dict(), indent=2) if options.json else result)
    return 0


def _declarations() -> tuple[CommandDeclaration, CommandDeclaration]:
    return CommandDeclaration(planning.estimate), CommandDeclaration(planning.estimate_generation)


def _estimate(options: dict[str, Any]) -> Any:
    # Imported here so that the other commands do not import torch.
    from hpu_magic.estimates.command.inputs import parse_inputs
    from hpu_magic.estimates.command.models import load_function, load_model

    generates = "prompt" in options or "new_tokens" in options
    _check(options, generates=generates)
    options["model"] = load_model(options["model"])
    if generates:
        return planning.estimate_generation(**options)
    options["inputs"] = parse_inputs(options["inputs"])
    if "loss" in options:
        options["loss"] = load_function(options["loss"])
    return planning.estimate(**{"mode": "eager", **options})


def _check(options: dict[str, Any], *, generates: bool) -> None:
    """Raise HPUError if options are missing or belong to the other kind of estimate."""
    if generates and not {"prompt", "new_tokens"} <= options.keys():
        raise HPUError("Text generation needs both --prompt N and --new-tokens N.")
    why = "requires --prompt N --new-tokens N"
    if generates:
        why = "applies only to steps and cannot be combined with --prompt"
    for name, value in options.items():
        if name not in _declarations()[generates].names:
            prefix = "--no-" if value is False else "--"
            raise HPUError(f"{prefix}{name.replace('_', '-')} {why}.")
    if not generates and not options.get("inputs"):
        raise HPUError(
            "An estimate requires the model's inputs, such as --inputs 8x512:int64 or, for text "
            "generation, --prompt 1024 --new-tokens 256."
        )
