"""``%hpu_to``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import line_magic, magics_class

from hpu_magic.commands import device as commands
from hpu_magic.errors import choice
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.declared import options_of, split_list

if TYPE_CHECKING:
    from hpu_magic.runtime.device.move import MoveReport


@magics_class
class MoveMagics(CommandMagics):
    """Move objects between the host and the device."""

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the device names."""
        return ["cpu", "hpu"] if argument == "device" else []

    @line_magic
    @options_of(commands.to)
    def hpu_to(self, line: str) -> MoveReport:
        """Move models, tensors, containers of tensors and optimizers to the device.

        Parameters remain the same objects, and tied weights remain tied. If one of the objects
        cannot be moved, nothing is moved. Examples::

            %hpu_to model
            %hpu_to model,optimizer,batch
            %hpu_to trainer.model --dtype bf16
            %hpu_to model --device cpu
        """
        from hpu_magic.runtime.device import move

        options = self.parse(self.hpu_to, line)
        self._refuse_values(options)
        objects = {name: self.find(name) for name in split_list(options.objects)}
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
        return self.keep(options.output, report)

    def _refuse_values(self, options: Any) -> None:
        """Raise UsageError if an option's value was typed in place of a variable."""
        for name in split_list(options.objects):
            if name in self.namespace:
                continue
            option = "dtype" if choice(name, ("bf16", "fp16", "fp32")) else "device"
            if option == "dtype" or name.partition(":")[0] in ("cpu", "hpu"):
                objects = split_list(options.objects)
                others = [other for other in objects if other != name] or ["model"]
                raise UsageError(
                    f"%hpu_to has no variable {name!r} to move: type %hpu_to {','.join(others)} "
                    f"--{option} {name}"
                )
