"""``%hpu_time`` and ``%%hpu_time``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_cell_magic, magics_class

from hpu_magic.commands import measuring as commands
from hpu_magic.magics import cell as cells
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.command_line import without_comment
from hpu_magic.magics.declared import options_of
from hpu_magic.magics.place import running_cell
from hpu_magic.magics.settings import HPUMagics

if TYPE_CHECKING:
    from hpu_magic.runtime.measure.timing import Stopwatch, TimeReport

_WITH_VALUE = ("-n", "--runs", "-r", "--repeats", "-o", "--output")


@magics_class
class TimingMagics(CommandMagics):
    """Times code on the device."""

    def __init__(self, shell: Any, settings: HPUMagics) -> None:
        super().__init__(shell, settings)
        cells.offer("hpu_time", self._stopwatch, repeats=True)

    @line_cell_magic
    @options_of(
        commands.time,
        leave_out=("function", "arguments"),
        statement="the statement to time (line magic only)",
    )
    def hpu_time(self, line: str, cell: str | None = None) -> TimeReport | None:
        """Time a statement or a cell on the device.

        The code runs several times, and the device is synchronized before and after the runs. The
        first runs include compilation and are reported separately from the steady state. Examples::

            %hpu_time model(batch)
            report = %hpu_time -n 100 -r 3 model(batch)

            %%hpu_time
            loss = step(batch)
        """
        __tracebackhide__ = True  # IPython omits this frame
        if cell is not None:
            cells.run(self.shell, "hpu_time", line, cell)
            return None
        from hpu_magic.runtime.measure.timing import Stopwatch

        arguments, statement = _split(line)
        options = self.parse(self.hpu_time, arguments)
        if not without_comment(statement).strip():
            raise UsageError(
                "%hpu_time needs a statement: type %hpu_time model(batch), or use %%hpu_time as "
                "the first line of a cell."
            )
        watch = self.call(Stopwatch, options.runs, options.repeats)
        code = self._compiled(statement)
        while watch.again():
            exec(code, self.shell.user_global_ns, self.shell.user_ns)
        return self.keep(options.output, watch.report)

    def _compiled(self, statement: str) -> Any:
        if "\0" in statement:  # may crash Python's tokenizer
            raise UsageError(f"{statement.strip()!r} is not Python: it contains a null character.")
        source = self.shell.transform_cell(statement)
        try:
            # IPython stores the source code under this file name, so that tracebacks can show the
            # statement.
            filename = self.shell.compile.cache(source, running_cell(self.shell) or 0)
            module = self.shell.compile.ast_parse(source, filename=filename)
            return compile(self.shell.transform_ast(module), filename, "exec")
        except (SyntaxError, ValueError) as error:
            message = getattr(error, "msg", str(error))
            raise UsageError(f"{statement.strip()!r} is not Python: {message}.") from None

    def _stopwatch(self, line: str) -> Stopwatch:
        from hpu_magic.runtime.measure.timing import Stopwatch

        arguments, statement = _split(without_comment(line))
        options = self.parse(self.hpu_time, arguments, cell=True)
        if statement.strip():
            raise UsageError(
                f"%%hpu_time times the cell and does not take {statement.strip()!r}: move it into "
                f"the cell, or type %hpu_time {statement.strip()}"
            )
        return Stopwatch(
            options.runs,
            options.repeats,
            keep=lambda report: self.keep(options.output, report),
        )


def _split(line: str) -> tuple[str, str]:
    """Split a line into the options at its start and the statement, which is returned unchanged."""
    words = list(re.finditer(r"\S+", line))
    position = 0
    while position < len(words) and words[position][0].startswith("-"):
        word = words[position][0]
        position += 1
        if word == "--":
            break
        if word in _WITH_VALUE:
            position += 1
    end = words[position].start() if position < len(words) else len(line)
    arguments = [word[0] for word in words[:position] if word[0] != "--"]
    return " ".join(arguments), line[end:]
