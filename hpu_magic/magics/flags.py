"""``%hpu_flags``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.runtime.execution.flags import FlagsReport


@magics_class
class FlagsMagics(CommandMagics):
    """The runtime's environment variables."""

    @line_magic
    @options_of(commands.flags)
    def hpu_flags(self, line: str) -> FlagsReport:
        """Show the documented flags of the runtime, changed ones first, or set a flag.

        Flags are environment variables. Most flags are read only once, when torch is imported. If
        you set a flag later, it is remembered for this notebook and takes effect when the kernel is
        restarted; it then overrides the environment. In a terminal, the flag is remembered for the
        current directory, and the environment overrides it. Examples::

            %hpu_flags
            %hpu_flags PT_HPU_LAZY_MODE
            %hpu_flags PT_HPU_METRICS
            %hpu_flags cache
            %hpu_flags PT_HPU_ENABLE_CACHE_METRICS=1
            %hpu_flags PT_HPU_ENABLE_CACHE_METRICS=1 --restart
            %hpu_flags PT_HPU_ENABLE_CACHE_METRICS=
        """
        options = self.parse(self.hpu_flags, line)
        name, equals, value = (options.name or "").partition("=")
        if equals and not name:
            raise UsageError(
                f"{options.name!r} does not contain a flag name: type %hpu_flags NAME=VALUE."
            )
        if equals:
            options.name, options.value = name, value
        return self.keep(options.output, self.call_declared(self.hpu_flags, options))

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the names of all flags or, after an equals sign, a flag's possible values."""
        from hpu_magic.runtime.execution.flags import documented

        if argument != "name":
            return []
        name, equals, _ = word.partition("=")
        if not equals:
            return list(documented())
        flag = documented().get(name)
        return [f"{name}={value}" for value in flag.choices()] if flag is not None else []
