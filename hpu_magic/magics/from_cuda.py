"""``%%hpu_from_cuda``."""

from __future__ import annotations

import ast
import re
from types import TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.magic import cell_magic, magics_class

from hpu_magic.commands import porting as commands
from hpu_magic.errors import HPUError
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.porting.report import PortReport

_BODY = 2  # line number of the first line below the magic
# IPython's cell magics whose cells contain Python code.
_OF_PYTHON = (["time"], ["timeit"], ["capture"], ["prun"])
# IPython's line magics that run the Python code after their options.
_LINE = re.compile(
    r"^([ \t]*)(%(?:time|timeit|prun)[ \t]+(?:-\w[ \t]*\d*[ \t]+)*)(\S.*)$", re.MULTILINE
)


@magics_class
class FromCudaMagics(CommandMagics):
    """Convert CUDA code."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_from_cuda", self._ported, rewrite=self._rewritten)

    @cell_magic
    @options_of(
        commands.from_cuda,
        leave_out=("code",),
        flags={"show": "show the converted cell without running it"},
    )
    def hpu_from_cuda(self, line: str, cell: str) -> None:
        """Convert a cell of CUDA code, show the changes, and run it.

        Code that has no counterpart is listed with its line number; if the cell needs such code,
        the cell does not run. The report's ``ported`` attribute contains the converted code.
        Examples::

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
        try:
            report = self._report(options, code)
        except HPUError:
            return "", code  # the code is not valid Python, which IPython reports
        if options.show or report.missing:
            return "", ""
        return report.first, report.executed

    def _ported(self, line: str, code: str) -> _Shown:
        options = self.parse(self.hpu_from_cuda, line, cell=True)
        report = self._report(options, code)
        self.keep(options.output, report)
        return _Shown(report, refuse=bool(report.missing) and not options.show)

    def _report(self, options: Any, code: str) -> PortReport:
        from hpu_magic.runtime.porting.port import port

        return port(
            code,
            mark_steps=options.mark_steps,
            variables=self.namespace,
            parsed=self._python(code),
            first_line=_BODY,
        )

    def _python(self, code: str) -> str:
        """Replace IPython's syntax in the cell with Python code, without changing line numbers."""
        body = code.lstrip("\n")
        if body[:1].isspace():
            return code  # IPython would change its indentation
        if body.startswith("%%"):
            first, _, rest = body.partition("\n")
            known = cells.is_offered(first) or first[2:].split(maxsplit=1)[:1] in _OF_PYTHON
            return self._python(f"{code[: -len(body)]}\n{rest}") if known else ""
        plain = _LINE.sub(_as_block, body)
        transformed: str = self.shell.input_transformer_manager.transform_cell(plain)
        if transformed.rstrip("\n").count("\n") != body.rstrip("\n").count("\n"):
            raise HPUError(
                "A magic or shell command in this cell spans several lines: write it on one line."
            )
        return "\n" * (len(code) - len(body)) + transformed


def _as_block(found: re.Match[str]) -> str:
    """Replace the magic before a statement with Python code of the same width."""
    try:
        ast.parse(f"if 1: {found[3]}")
    except (SyntaxError, ValueError):
        return found[0]
    return f"{found[1]}{'if 1:':{len(found[2])}}{found[3]}"


class _Shown:
    """Shows a report above the output of the converted cell."""

    def __init__(self, report: PortReport, *, refuse: bool) -> None:
        self._report = report
        self._refuse = refuse

    def __enter__(self) -> None:
        from IPython.display import display

        display(self._report)
        if self._refuse:
            lines = ", ".join(str(each.line) for each in self._report.missing)
            raise HPUError(
                f"The cell did not run: the code on line {lines} has no counterpart. Remove it, or "
                "type %%hpu_from_cuda --show to convert the rest."
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None
