"""Options and output of ``hpu-magic estimate``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hpu_magic.errors import choice
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.step_arguments import GENERATIONS, MODES, PRECISIONS

if TYPE_CHECKING:
    from hpu_magic.estimates.generation.result import GenerationEstimate
    from hpu_magic.estimates.result import Estimate


_OF_A_STEP = ("train", "optimizer", "checkpointing", "accumulate", "loss", "inputs")
_OF_GENERATION = ("new_tokens", "cache_dtype", "cache", "bucket", "capture_prompt")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of the command."""
    command = commands.add_parser(
        "estimate",
        help="estimate time and memory of a model on cards that you do not have",
        description="Estimate time and memory of a model on Gaudi cards, without a card and "
        "without computing: of a training step, of a forward pass with --no-train, or of text "
        "generation with --prompt and --new-tokens. Each value has the band of published "
        "measurements.",
        epilog="Examples: hpu-magic estimate models:make --inputs 8x3x224x224; "
        "hpu-magic estimate ./config.json --inputs 8x512:int64 --cards 8 --parallel zero3; "
        "hpu-magic estimate ./config.json --prompt 1024 --new-tokens 256 --batch largest --json",
    )
    add = command.add_argument
    add(
        "model",
        metavar="MODEL",
        help="module:callable that creates the model, or the folder or JSON file of a transformers "
        "configuration; weights are not read",
    )
    add(
        "--inputs",
        metavar="A,B",
        help="shapes and types of the model's arguments, such as 8x512:int64 (float32 by "
        "default), or with names mask=8x512:bool",
    )
    add(
        "--train",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="a training step, or with --no-train a forward pass",
    )
    add("--card", type=_choice_of(GENERATIONS), choices=GENERATIONS, help="the card (gaudi2)")
    add("--cards", type=int, default=1, metavar="N", help="number of cards that work together")
    add(
        "--parallel",
        metavar="HOW",
        help="how they share the work: ddp, zero1, zero2, zero3, fsdp, tp=N, pp=N, or a product "
        "such as tp=2,pp=2,zero1",
    )
    add(
        "--mode",
        type=_choice_of(MODES),
        choices=MODES,
        help="the execution mode (lazy; graphs for generation)",
    )
    add(
        "--dtype",
        type=_choice_of(PRECISIONS),
        choices=PRECISIONS,
        help="the number type (that of the parameters; bf16 for generation)",
    )
    add(
        "--checkpointing",
        default="none",
        choices=["none", "full", "selective"],
        help="layers that the backward pass computes again (none)",
    )
    add("--accumulate", type=int, default=1, metavar="N", help="batches in an optimizer step")
    add("--batch", metavar="N", help="batch size on one card, or largest")
    add("--optimizer", metavar="NAME", help="a name such as adamw or fusedadamw, or none (adamw)")
    add("--loss", metavar="F", help="module:callable that computes the loss from the output")
    add = command.add_argument_group("text generation").add_argument
    add("--prompt", type=int, metavar="N", help="tokens of each prompt")
    add("--new-tokens", type=int, metavar="N", help="tokens to generate after each prompt")
    add("--cache", choices=["static", "dynamic"], help="the kind of the cache (static)")
    add(
        "--cache-dtype",
        choices=["fp32", "bf16", "fp8"],
        help="the number type of keys and values in the cache (that of the model)",
    )
    add("--bucket", type=int, metavar="N", help="round the tokens that a step reads up to (128)")
    add("--capture-prompt", action="store_true", help="capture the prompt's pass in a graph too")
    command.add_argument("--json", action="store_true", help="print the values as JSON")
    command.set_defaults(run=run)


def _choice_of(choices: Sequence[str]) -> Callable[[str], str]:
    return lambda text: choice(text, choices) or text


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        found = _generation(options) if _generates(options) else _step(options)
    except EstimateError as error:
        print(f"hpu-magic: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(found.to_dict(), indent=2) if options.json else found)
    return 0


def _generates(options: argparse.Namespace) -> bool:
    """Return whether the options are for text generation.

    Raises
    ------
    EstimateError
        Options are missing, or belong to different kinds of estimates.
    """
    if options.prompt is None and options.new_tokens is None:
        _refuse(options, _OF_GENERATION, "requires --prompt N --new-tokens N")
        if not options.inputs:
            raise EstimateError(
                "An estimate needs the arguments of the model, such as --inputs 8x512:int64, or "
                "for text generation --prompt 1024 --new-tokens 256."
            )
        return False
    if None in (options.prompt, options.new_tokens):
        raise EstimateError("Text generation needs both --prompt N and --new-tokens N.")
    _refuse(options, _OF_A_STEP, "is an option of a step and cannot be combined with --prompt")
    return True


_DEFAULTS = {"train": True, "checkpointing": "none", "accumulate": 1, "capture_prompt": False}


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        value, default = getattr(options, name), _DEFAULTS.get(name)
        if value != default:
            prefix = "--no-" if value is False else "--"
            raise EstimateError(f"{prefix}{name.replace('_', '-')} {why}.")


def _step(options: argparse.Namespace) -> Estimate:
    # Imported here, because other commands do not import torch.
    from hpu_magic.estimates.command.inputs import parse_inputs
    from hpu_magic.estimates.command.models import load_function, load_model
    from hpu_magic.estimates.estimate import estimate

    inputs = parse_inputs(options.inputs)
    optimizer = options.optimizer or "adamw"
    return estimate(
        load_model(options.model),
        *inputs,
        train=options.train,
        cards=options.cards,
        parallel=options.parallel,
        optimizer=None if optimizer == "none" else optimizer,
        checkpointing=options.checkpointing,
        accumulate=options.accumulate,
        loss=load_function(options.loss) if options.loss else None,
        mode=options.mode or "lazy",
        **_passed(options, "card", "dtype"),
        batch=_batch(options.batch),
    )


def _generation(options: argparse.Namespace) -> GenerationEstimate:
    from hpu_magic.estimates.command.models import load_model
    from hpu_magic.estimates.generation.estimate import estimate_generation

    return estimate_generation(
        load_model(options.model),
        _batch(options.batch) or 1,
        options.prompt,
        options.new_tokens,
        cards=options.cards,
        parallel=options.parallel,
        capture_prompt=options.capture_prompt,
        **_passed(options, "card", "mode", "dtype", "cache_dtype", "cache", "bucket"),
    )


def _passed(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were passed; the function has defaults for the others."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _batch(text: str | None) -> Any:
    if text is None or text == "largest":
        return text
    try:
        return int(text)
    except ValueError:
        raise EstimateError(f"--batch is {text!r}: use a number or largest.") from None
