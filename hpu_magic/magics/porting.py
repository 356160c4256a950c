"""``%%hpu_from_cuda``."""

from __future__ import annotations

import argparse
import ast
import re
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.magic import cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.errors import HPUError
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured, HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.report import PortReport

_BODY = 2  # the number of the first line below the magic's own
# Cell magics of IPython whose cell is Python.
_OF_PYTHON = (["time"], ["timeit"], ["capture"], ["prun"])
# The same magics in a line, whose rest is Python, with options before it.
_LINE = re.compile(
    r"^([ \t]*)(%(?:time|timeit|prun)[ \t]+(?:-\w[ \t]*\d*[ \t]+)*)(\S.*)$", re.MULTILINE
)


@magics_class
class PortMagics(CommandMagics):
    """CUDA code as code for the card."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_from_cuda", self._ported, rewrite=self._rewritten)

    @cell_magic
    @magic_arguments()
    @argument(
        "--show",
        action=argparse.BooleanOptionalAction,
        default=Configured("port_show"),
        help="show what becomes of the cell without running it",
    )
    @argument(
        "--mark-steps",
        action=argparse.BooleanOptionalAction,
        default=Configured("port_mark_steps"),
        help="mark a step behind each backward pass and optimizer's step; by default in lazy mode",
    )
    @argument("-o", "--output", metavar="NAME", help="keep the report under this name")
    def hpu_from_cuda(self, line: str, cell: str) -> None:
        """Show a cell of CUDA code as code for the card, and run that.

        What has no counterpart is named with its line; where the cell cannot run without it, it
        is not run. The report's ``ported`` is the new code. Examples::

            %%hpu_from_cuda
            model = model.cuda()
            with torch.cuda.amp.autocast():
                loss = model(x.to("cuda:0")).mean()

            %%hpu_from_cuda --show -o report
            torch.cuda.empty_cache()
        """
        cells.run(self.shell, "hpu_from_cuda", line, cell)

    def _rewritten(self, line: str, code: str) -> tuple[str, str]:
        options = self.parse(self.hpu_from_cuda, line, cell=True)
        self.check_name(options.output)
        try:
            report = self._report(options, code)
        except HPUError:
            return "", code  # no Python: IPython says so, with the line
        if options.show or report.missing:
            return "", ""
        return report.first, report.executed

    def _ported(self, line: str, code: str) -> _Shown:
        options = self.parse(self.hpu_from_cuda, line, cell=True)
        report = self._report(options, code)
        self.keep(options.output, report)
        return _Shown(report, refuse=bool(report.missing) and not options.show)

    def _report(self, options: argparse.Namespace, code: str) -> PortReport:
        from hpu_magic.runtime.porting.port import port

        return port(
            code,
            mark_steps=options.mark_steps,
            variables=self.namespace,
            parsed=self._python(code),
            first_line=_BODY,
        )

    def _python(self, code: str) -> str:
        """Return the cell without IPython's syntax, which may have taken several lines together."""
        body = code.lstrip("\n")
        if body[:1].isspace():
            return code  # IPython would indent it otherwise than it is run
        if body.startswith("%%"):
            first, _, rest = body.partition("\n")
            known = cells.is_offered(first) or first[2:].split(maxsplit=1)[:1] in _OF_PYTHON
            return self._python(f"{code[: -len(body)]}\n{rest}") if known else ""
        plain = _LINE.sub(_as_block, body)
        transformed: str = self.shell.input_transformer_manager.transform_cell(plain)
        if transformed.rstrip("\n").count("\n") != body.rstrip("\n").count("\n"):
            raise HPUError(
                "A magic or a shell command of this cell goes over several lines: write it in one."
            )
        return "\n" * (len(code) - len(body)) + transformed


def _as_block(found: re.Match[str]) -> str:
    """Write Python of the same width before the statements that a magic runs."""
    try:
        ast.parse(f"if 1: {found[3]}")
    except (SyntaxError, ValueError):
        return found[0]
    return f"{found[1]}{'if 1:':{len(found[2])}}{found[3]}"


class _Shown:
    """Shows a report above what the ported cell shows."""

    def __init__(self, report: PortReport, *, refuse: bool) -> None:
        self._report = report
        self._refuse = refuse

    def __enter__(self) -> None:
        from IPython.display import display

        display(self._report)
        if self._refuse:
            lines = ", ".join(str(each.line) for each in self._report.missing)
            raise HPUError(
                f"The cell was not run: what it does in line {lines} has no counterpart. Leave "
                "that out, or look at the rest with --show."
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None
