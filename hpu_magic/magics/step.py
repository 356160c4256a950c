"""What commands that estimate a step have in common: which step it is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from hpu_magic.estimates.step_arguments import shared_arguments
from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics

_Magic = Callable[..., Any]


def step_options(
    *, generation: Any, mode: Any, precision: Any, optimizer: str | None, defaults: tuple[str, str]
) -> Callable[[_Magic], _Magic]:
    """Declare the options that say which step is estimated.

    Parameters
    ----------
    generation, mode, precision, optimizer
        What is taken where they are left out.
    defaults
        What is taken for mode and optimizer, in words.
    """
    in_words = dict(zip(("mode", "optimizer"), defaults, strict=True))
    shared = shared_arguments(
        generation=generation, mode=mode, precision=precision, mode_said=in_words["mode"]
    )
    options = [
        argument(
            "model", metavar="MODEL", help="a module, on any device; dotted names are allowed"
        ),
        argument(
            "--inputs",
            default="",
            metavar="A,B",
            help="variables that it is called with: tensors on any device, or a batch as a dict",
        ),
        *(argument(name, **declared) for name, declared in shared),
        argument(
            "--optimizer",
            default=optimizer,
            metavar="NAME",
            help="a variable, a name of torch.optim or the vendor's, or none "
            f"({in_words['optimizer']} by default)",
        ),
        argument("--loss", metavar="F", help="a function of the output: what is minimized"),
    ]

    def declare(magic: _Magic) -> _Magic:
        for option in reversed(options):
            magic = option(magic)
        return magic

    return declare


class StepMagics(CommandMagics):
    """Base of the commands that estimate a step."""

    comma_separated = frozenset({"inputs"})

    def step(
        self, command: str, options: argparse.Namespace
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """Return the model, what it is called with, and the arguments of an estimate.

        Raises
        ------
        UsageError
            One of them is missing, or means nothing.
        """
        names = [name.strip() for name in options.inputs.split(",") if name.strip()]
        if not names:
            raise UsageError(f"%{command} needs what the model is called with: --inputs x.")
        arguments = {
            "train": not options.infer,
            "generation": options.generation,
            "cards": options.cards,
            "parallel": options.parallel,
            "mode": options.mode,
            "precision": options.precision,
            "optimizer": self._optimizer(options.optimizer),
            "checkpointing": options.checkpointing,
            "accumulate": options.accumulate,
            "batch": _batch(options.batch),
            "loss": self.find(options.loss) if options.loss is not None else None,
        }
        return self.find(options.model), [self.find(name) for name in names], arguments

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return what the options take that have no fixed choice."""
        known = {
            "optimizer": ["adamw", "adam", "fusedadamw", "sgd", "none"],
            "parallel": ["ddp", "fsdp", "zero1", "zero2", "zero3", "tp=2", "pp=2"],
            "batch": ["largest"],
        }
        return known.get(argument, [])

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable is a module, or what one is called with."""
        fitting: dict[str, Callable[[Any], bool]] = {
            "model": kinds.module,
            "inputs": lambda one: kinds.of_tensors(one) or isinstance(one, dict),
            "optimizer": kinds.optimizer,
            "loss": callable,
        }
        return argument in fitting and fitting[argument](value)

    def _optimizer(self, name: str | None) -> Any:
        if name is None or name.lower() == "none":
            return None
        variable = self.namespace.get(name.partition(".")[0])
        return self.find(name) if variable is not None else name


def _batch(text: str | None) -> int | str | None:
    if text is None or text == "largest":
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--batch {text!r} is no size: give a number, or largest.") from None
