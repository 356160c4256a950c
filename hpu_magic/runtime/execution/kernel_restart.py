"""Restart the kernel, which is the only way to release its card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic import units
from hpu_magic.runtime.device import device
from hpu_magic.runtime.execution import mode as modes
from hpu_magic.runtime.present.report import Report, Row
from hpu_magic.runtime.start import restart as kernel


@dataclass(repr=False)
class RestartReport(Report):
    """A restart that is in progress."""

    held: bool  #: whether this process holds a card
    in_use: int = 0  #: bytes in use on the card
    mode: str | None = None  #: the requested mode; None if the mode does not change

    def title(self) -> str:
        """Return the headline."""
        mode = f" in {self.mode} mode" if self.mode else ""
        releases = f" and releasing {device.label()}" if self.held else ""
        return f"Restarting the kernel{mode}{releases}; variables will be lost."

    def rows(self) -> Sequence[Row]:
        """Return the memory in use."""
        return [("in use", units.size(self.in_use))] if self.held else ()


def restart_now(mode: str | None = None) -> RestartReport:
    """Restart the kernel; see `hpu_magic.restart`."""
    report = RestartReport(device.taken(), mode=mode)
    if report.held:
        import torch

        report.in_use = torch.hpu.memory_stats()["InUse"]
    if mode is not None and kernel.available():
        modes.request(mode)
    kernel.restart_kernel(remembered=mode is not None)
    return report
