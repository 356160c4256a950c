"""Releasing the card, which only the end of the process does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic import units
from hpu_magic.runtime.device import device
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.start import restart as kernel


@dataclass(repr=False)
class ReleaseReport(Report):
    """The card of this process, and how to release it.

    Attributes
    ----------
    held : bool
        This process holds a card.
    in_use : int
        Device memory in use, in bytes.
    restarting : bool
        The kernel is being restarted.
    """

    held: bool
    in_use: int = 0
    restarting: bool = False

    def title(self) -> str:
        """Return the headline."""
        if not self.held:
            return "This process holds no card: there is nothing to release."
        return f"This process holds {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the memory in use."""
        return [("in use", units.size(self.in_use))] if self.held else ()

    def notes(self) -> Sequence[str]:
        """Return how the card is released."""
        if not self.held:
            return ()
        if self.restarting:
            return ("The kernel restarts now and releases the card; variables are lost.",)
        how = kernel.how("%hpu_restart") if kernel.interactive() else "end the process."
        return (f"A process holds its card until it ends: to release the card, {how}",)


def release_card(*, restart: bool = False) -> ReleaseReport:
    """Return how to release the card, or restart the kernel to do so; see `hpu_magic.release`."""
    memory = device.memory()
    if memory is None:
        return ReleaseReport(False)
    report = ReleaseReport(True, memory.in_use)
    if restart:
        kernel.restart_kernel()
        report.restarting = True
    return report
