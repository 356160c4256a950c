"""``%hpu_to``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of

if TYPE_CHECKING:
    from hpu_magic.runtime.device.move import MoveReport


@magics_class
class MoveMagics(CommandMagics):
    """Moves what the user has."""

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the devices."""
        return ["cpu", "hpu"] if argument == "device" else []

    @line_magic
    @options_of(commands.to)
    def hpu_to(self, line: str) -> MoveReport:
        """Move models, tensors, containers of tensors and optimizers' state to the hpu.

        Parameters stay the same objects and tied weights stay tied. Nothing is moved if one of
        the names cannot be. Examples::

            %hpu_to model
            %hpu_to model optimizer batch
            %hpu_to trainer.model --dtype bf16
            %hpu_to model --device cpu
        """
        from hpu_magic.runtime.device import move

        options = self.parse(self.hpu_to, line)
        objects = {name: self.find(name) for name in options.objects}
        report = self.call(
            move.move,
            objects,
            device=options.device,
            dtype=options.dtype,
            namespace=self.namespace,
        )
        for name, value in report.moved.items():
            if value is not objects[name]:
                self.bind(name, value)
        return report
