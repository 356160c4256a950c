"""``%hpu_estimate``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured

if TYPE_CHECKING:
    from hpu_magic.estimate.estimate import Estimate


@magics_class
class EstimateMagics(CommandMagics):
    """What a step would take on cards that are not here."""

    comma_separated = frozenset({"inputs"})

    @line_magic
    @magic_arguments()
    @argument("model", metavar="MODEL", help="a module, on any device; dotted names are allowed")
    @argument(
        "--inputs",
        default="",
        metavar="A,B",
        help="variables that it is called with: tensors on any device, or a batch as a dict",
    )
    @argument("--infer", action="store_true", help="the forward pass alone, without gradients")
    @argument(
        "--generation",
        default=Configured("estimate_generation"),
        choices=["gaudi", "gaudi2", "gaudi3"],
        help="the card (gaudi2 by default)",
    )
    @argument("--cards", type=int, default=1, metavar="N", help="cards that work together")
    @argument(
        "--parallel",
        metavar="HOW",
        help="how they share the work: ddp, zero1, zero2, zero3, tp=N, pp=N, or tp=2,pp=2,zero1",
    )
    @argument(
        "--mode",
        default=Configured("estimate_mode"),
        choices=["eager", "lazy", "graphs", "compile"],
        help="how operations reach the card (lazy by default)",
    )
    @argument(
        "--precision",
        default=Configured("estimate_precision"),
        choices=["fp32", "bf16", "bf16-mixed", "fp8"],
        help="what it computes in (the type of the model's parameters by default)",
    )
    @argument(
        "--optimizer",
        default="adamw",
        metavar="NAME",
        help="a variable, a name of torch.optim or the vendor's, or none (adamw by default)",
    )
    @argument(
        "--checkpointing",
        default="none",
        choices=["none", "full", "selective"],
        help="what of the layers is computed again in the backward pass",
    )
    @argument("--accumulate", type=int, default=1, metavar="N", help="batches in a step")
    @argument("--batch", metavar="N", help="size of a batch on one card, or largest: what fits")
    @argument("--loss", metavar="F", help="a function of the output: what is minimized")
    @argument("-o", "--output", metavar="NAME", help="keep the estimate under this name")
    def hpu_estimate(self, line: str) -> Estimate:
        """Estimate a step's time and memory on Gaudi cards, without a card and without computing.

        Shapes and types of the inputs count, so they may be on any device. Examples::

            %hpu_estimate model --inputs tokens
            %hpu_estimate model --inputs x,y --loss loss_of --generation gaudi3
            %hpu_estimate model --inputs batch --cards 8 --parallel zero3 --batch largest
            %hpu_estimate model --inputs x --infer --mode graphs --precision bf16
        """
        from hpu_magic.estimate.estimate import estimate

        options = self.parse(self.hpu_estimate, line)
        self.check_name(options.output)
        names = [name.strip() for name in options.inputs.split(",") if name.strip()]
        if not names:
            raise UsageError("%hpu_estimate needs what the model is called with: --inputs x.")
        report = self.call(
            estimate,
            self.find(options.model),
            *(self.find(name) for name in names),
            train=not options.infer,
            generation=options.generation,
            cards=options.cards,
            parallel=options.parallel,
            mode=options.mode,
            precision=options.precision,
            optimizer=self._optimizer(options.optimizer),
            checkpointing=options.checkpointing,
            accumulate=options.accumulate,
            batch=_batch(options.batch),
            loss=self.find(options.loss) if options.loss is not None else None,
        )
        return self.keep(options.output, report)

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

    def _optimizer(self, name: str) -> Any:
        if name.lower() == "none":
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
