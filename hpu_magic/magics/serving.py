"""``%hpu_serve``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import serving as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.serving.report import ServerReport


@magics_class
class ServingMagics(CommandMagics):
    """Serve models."""

    @line_magic
    @options_of(commands.serve, leave_out=("options",))
    def hpu_serve(self, line: str) -> ServerReport | None:
        """Serve a model on a free card with vLLM, show the server's state, or stop it.

        The model comes first. All options that are not listed here are passed to vllm serve.
        The command returns when the server is ready; a live panel then shows its requests, tokens
        per second and caches. Only this machine can reach the server, which stops when the kernel
        ends. Examples::

            %hpu_serve Qwen/Qwen3-0.6B --max-model-len 2048
            %hpu_serve ./tiny_llama --cards 2 --port 8001 --enforce-eager
            %hpu_serve
            %hpu_serve off
        """
        options = self.parse(self.hpu_serve, line, rest=True)
        if options.rest and line.lstrip().startswith("-"):
            passed = " ".join(options.rest)
            raise UsageError(f"The model must come first: type %hpu_serve MODEL {passed}")
        declaration = self.hpu_serve.declaration  # type: ignore[attr-defined,union-attr]
        arguments, named = self.call(declaration.arguments, options, self.find)
        try:
            result = self.call(commands.serve, *arguments, *options.rest, **named)
        except KeyboardInterrupt:
            raise UsageError("%hpu_serve was interrupted; the server has been stopped.") from None
        return self.keep(options.output, result)

    def close(self) -> None:
        """Stop the server."""
        import sys

        if session := sys.modules.get("hpu_magic.serving.session"):
            session.stop()
