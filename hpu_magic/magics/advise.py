"""``%hpu_advise``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics.settings import Configured
from hpu_magic.magics.step import StepMagics, step_options

if TYPE_CHECKING:
    from hpu_magic.advice.report import Advice
    from hpu_magic.advice.suggestion import Suggestion


@magics_class
class AdviseMagics(StepMagics):
    """What would make a step faster."""

    @line_magic
    @magic_arguments()
    @step_options(
        generation=Configured("estimate_generation"),
        mode=Configured("advise_mode"),
        precision=Configured("estimate_precision"),
        optimizer=None,
        defaults=("the fit's, or this process's", "the fit's, or adamw"),
    )
    @argument("--observed", metavar="R", help="the result of a fit, or %%hpu_ledger last: measured")
    @argument(
        "--apply", type=int, metavar="N", help="make the change of this number, where it is safe"
    )
    @argument("-o", "--output", metavar="NAME", help="keep the advice under this name")
    def hpu_advise(self, line: str) -> Advice:
        """List what would make a model's step faster or fit a card, what gains most first.

        Gains are estimates with their band, or measured by a fit. Each change is shown as code;
        --apply makes it where a command can. Examples::

            %hpu_advise model --inputs tokens
            %hpu_advise model --inputs x,y --loss loss_of --card gaudi3
            %hpu_advise model --inputs batch --cards 8 --observed result -o advice
            %hpu_advise model --inputs x --apply 1
        """
        from hpu_magic.advice.advise import advise

        options = self.parse(self.hpu_advise, line)
        self.check_name(options.output)
        model, inputs, arguments = self.step("hpu_advise", options)
        observed = self.find(options.observed) if options.observed is not None else None
        # What is left out is as the fit had it.
        left_out = [
            name
            for name, neutral in _NEUTRAL.items()
            if arguments[name] == neutral and not (name == "optimizer" and options.optimizer)
        ]
        given = {name: value for name, value in arguments.items() if name not in left_out}
        advice = self.call(advise, model, *inputs, observed=observed, name=options.model, **given)
        if options.apply is not None:
            self._apply(self.call(advice.numbered, options.apply))
        return self.keep(options.output, advice)

    def fits(self, argument: str, position: int, value: object) -> bool:
        """Tell whether a variable is of the kind that an argument names."""
        if argument == "observed":
            return type(value).__name__ in ("FitResult", "LedgerReport")
        return super().fits(argument, position, value)

    def _apply(self, suggestion: Suggestion) -> None:
        command = suggestion.command
        if not command:
            raise UsageError(
                f"{suggestion.title!r} cannot be applied for you, as {suggestion.by_hand}: "
                f"write\n{suggestion.change}"
            )
        print(f"Applied: {suggestion.title}, by {command}")
        if command.startswith("%"):
            magic, _, rest = command[1:].partition(" ")
            self.shell.run_line_magic(magic, rest)
        else:
            self.shell.ex(command)


_NEUTRAL = {
    "mode": None,
    "precision": None,
    "optimizer": None,
    "cards": 1,
    "accumulate": 1,
    "checkpointing": "none",
}
