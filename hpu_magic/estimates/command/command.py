"""What ``hpu-magic estimate`` takes, and what it prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.step_arguments import shared_arguments

if TYPE_CHECKING:
    from hpu_magic.estimates.generation.result import GenerationEstimate
    from hpu_magic.estimates.result import Estimate


_OF_A_STEP = ("infer", "optimizer", "checkpointing", "accumulate", "loss", "inputs")
_OF_GENERATION = ("new_tokens", "kv_dtype", "cache", "bucket", "capture_prompt")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's parser; what it yields has `run`."""
    command = commands.add_parser(
        "estimate",
        help="tell what a model's step or its generation would take on cards that are not here",
        description="Estimate time and memory of a model on Gaudi cards, without a card and "
        "without computing: of a training step, of a forward pass with --no-train, or of generating "
        "text with --prompt and --new-tokens. Each figure has the band of published measurements.",
        epilog="Examples: hpu-magic estimate models:make --inputs 8x3x224x224; "
        "hpu-magic estimate ./config.json --inputs 8x512:int64 --cards 8 --parallel zero3; "
        "hpu-magic estimate ./config.json --prompt 1024 --new-tokens 256 --batch largest --json",
    )
    command.add_argument(
        "model",
        metavar="MODEL",
        help="module:callable that makes it, or the folder or JSON file of a configuration of "
        "transformers; weights are not read",
    )
    command.add_argument(
        "--inputs",
        metavar="A,B",
        help="shapes and types of what it is called with, as 8x512:int64 (float32 by default), "
        "with names as mask=8x512:bool",
    )
    for name, declared in shared_arguments(
        generation="gaudi2", mode=None, precision=None, mode_said="lazy, of generation graphs"
    ):
        command.add_argument(name, **declared)
    command.add_argument(
        "--optimizer", metavar="NAME", help="a name of torch.optim or the vendor's, or none (adamw)"
    )
    command.add_argument(
        "--loss", metavar="F", help="module:callable of the output: what is minimized"
    )
    generation = command.add_argument_group("generation of text")
    generation.add_argument("--prompt", type=int, metavar="N", help="tokens of each prompt")
    generation.add_argument("--new-tokens", type=int, metavar="N", help="tokens made behind it")
    generation.add_argument(
        "--kv-dtype", choices=["fp32", "bf16", "fp8"], help="type of keys and values in the cache"
    )
    generation.add_argument(
        "--cache", choices=["static", "dynamic"], help="how the cache has its memory (static)"
    )
    generation.add_argument(
        "--bucket", type=int, metavar="N", help="tokens to which what a step reads is rounded (128)"
    )
    generation.add_argument(
        "--capture-prompt", action="store_true", help="the prompt's pass is an HPU graph too"
    )
    command.add_argument("--json", action="store_true", help="print the figures as JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    try:
        found = _generation(options) if _generates(options) else _step(options)
    except EstimateError as refused:
        print(f"hpu-magic: {refused}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(_record(found), indent=2) if options.json else found)
    return 0


def _generates(options: argparse.Namespace) -> bool:
    """Tell whether text is generated.

    Raises
    ------
    EstimateError
        Options of both kinds are given, or too few of one.
    """
    if options.prompt is None and options.new_tokens is None:
        _refuse(options, _OF_GENERATION, "belongs to --prompt N --new-tokens N")
        if not options.inputs:
            raise EstimateError(
                "Give what the model is called with, as --inputs 8x512:int64, or what it "
                "generates, as --prompt 1024 --new-tokens 256."
            )
        return False
    if None in (options.prompt, options.new_tokens):
        raise EstimateError("--prompt and --new-tokens are given together.")
    _refuse(options, _OF_A_STEP, "belongs to a step, and --prompt estimates generation")
    return True


def _refuse(options: argparse.Namespace, names: tuple[str, ...], why: str) -> None:
    for name in names:
        given = getattr(options, name)
        # Their defaults; True equals 1.
        if given is True or given not in (None, False, "none", 1):
            raise EstimateError(f"--{name.replace('_', '-')} {why}.")


def _step(options: argparse.Namespace) -> Estimate:
    # Here, because other commands answer without torch.
    from hpu_magic.estimates.command.inputs import inputs_described
    from hpu_magic.estimates.command.models import function_named, model_named
    from hpu_magic.estimates.estimate import estimate

    inputs = inputs_described(options.inputs)
    optimizer = options.optimizer or "adamw"
    return estimate(
        model_named(options.model),
        *inputs,
        train=not options.infer,
        cards=options.cards,
        parallel=options.parallel,
        optimizer=None if optimizer == "none" else optimizer,
        checkpointing=options.checkpointing,
        accumulate=options.accumulate,
        loss=function_named(options.loss) if options.loss else None,
        mode=options.mode or "lazy",
        **_given(options, "generation", "precision"),
        batch=_batch(options.batch),
    )


def _generation(options: argparse.Namespace) -> GenerationEstimate:
    from hpu_magic.estimates.command.models import model_named
    from hpu_magic.estimates.generation.estimate import estimate_generation

    return estimate_generation(
        model_named(options.model),
        _batch(options.batch) or 1,
        options.prompt,
        options.new_tokens,
        cards=options.cards,
        parallel=options.parallel,
        capture_prompt=options.capture_prompt,
        **_given(options, "generation", "mode", "precision", "kv_dtype", "cache", "bucket"),
    )


def _given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options that were given; the function knows what is taken for the others."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _batch(text: str | None) -> Any:
    if text is None or text == "largest":
        return text
    try:
        return int(text)
    except ValueError:
        raise EstimateError(f"--batch {text!r} is no size: give a number, or largest.") from None


def _record(found: Estimate | GenerationEstimate) -> Mapping[str, Any]:
    """Return an estimate's figures by the names of its attributes: seconds, and bytes."""
    names = ["seconds", "tokens_per_second", "batch", "peak_memory", "fits", "band"]
    of_kind = ("first_token_seconds", "token_seconds", "samples_per_second")
    names += [name for name in of_kind if hasattr(found, name)]
    card = found.settings.card if hasattr(found, "settings") else found.card
    return {
        "estimate": found.title().removeprefix("Estimate: "),
        "model": found.model,
        **{name: getattr(found, name) for name in names},
        "memory_of_a_card": card.memory,
        "memory": found.memory if isinstance(found.memory, dict) else found.memory.parts(),
    }
