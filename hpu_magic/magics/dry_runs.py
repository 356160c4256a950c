"""``%%hpu_dry_run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, magics_class
from IPython.display import display

from hpu_magic.commands import dry_runs as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.dry_runs.report import DryRun

_MARKS = ("%", "!", "?")


@magics_class
class DryRunMagics(CommandMagics):
    """Dry runs."""

    @cell_magic
    @options_of(commands.dry_run, leave_out=("script", "arguments", "code"))
    def hpu_dry_run(self, line: str, cell: str) -> DryRun:
        """Run a cell in its own process on simulated cards that compute nothing.

        The report shows whether the cell fits on a card, what uses the memory, and which lines read
        values from the card. Such values are stand-ins. By default, the run ends when the optimizer
        steps repeat. The process has only the variables that --push copies. The cell must be plain
        Python; the report refers to its lines as cell:LINE. Examples::

            %%hpu_dry_run --card gaudi3 --push Model
            model = Model().to("hpu")
            train(model)

            %%hpu_dry_run --cards 8 --steps 2 --value cell:3=0.5 -o report
            losses = train(model)
            print(losses[-1].item())
        """
        options = self.parse(self.hpu_dry_run, line, cell=True)
        declaration = self.hpu_dry_run.declaration  # type: ignore[attr-defined,union-attr]
        _, named = self.call(declaration.arguments, options, self.find)
        named["push"] = {name: self.find(name) for name in named["push"] or ()}
        # Replace the command with a comment, so that line numbers are correct.
        code = f"# %%hpu_dry_run\n{cell}"
        _check(code)
        try:
            result = self.call(commands.dry_run, code=code, **named)
        except KeyboardInterrupt as interrupt:
            from hpu_magic.dry_runs.run import DryRunInterrupt

            if isinstance(interrupt, DryRunInterrupt):
                display(self.keep(options.output, interrupt.result))
            raise UsageError("%%hpu_dry_run was interrupted; its process has ended.") from None
        return self.keep(options.output, result)


def _check(code: str) -> None:
    """Raise UsageError if the code of a cell is not plain Python."""
    try:
        compile(code, "cell", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        for number, line in enumerate(code.splitlines(), 1):
            if line.strip().startswith(_MARKS) or line.strip().endswith("?"):
                raise UsageError(
                    f"%%hpu_dry_run runs plain Python, but line {number} is {line.strip()!r}: run "
                    "it in another cell, or call a function instead."
                ) from None
        number = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", str(error))
        raise UsageError(f"Line {number} of the cell is not Python: {message}.") from None
