"""``%hpu_to``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from hpu_magic.magics import kinds
from hpu_magic.magics.command import CommandMagics
from hpu_magic.magics.settings import Configured

if TYPE_CHECKING:
    from hpu_magic.runtime.device.move import MoveReport


@magics_class
class MoveMagics(CommandMagics):
    """Moves what the user has."""

    def known_values(self, argument: str, word: str) -> list[str]:
        """Return the devices."""
        return ["cpu", "hpu"] if argument == "device" else []

    def fits(self, argument: str, position: int, value: Any) -> bool:
        """Tell whether a variable can be moved."""
        return argument == "names" and kinds.movable(value)

    @line_magic
    @magic_arguments()
    @argument("names", nargs="+", metavar="NAME", help="variables; dotted names are allowed")
    @argument(
        "--dtype",
        choices=["bf16", "fp16", "fp32"],
        default=Configured("dtype"),
        help="convert floating-point values on the way",
    )
    @argument(
        "--device", default=Configured("device"), help="hpu (the default) or cpu", metavar="DEVICE"
    )
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
        objects = {name: self.find(name) for name in options.names}
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
