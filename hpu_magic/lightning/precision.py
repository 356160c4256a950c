"""The precision plug-in: fp32, or autocast of the card to bfloat16."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from hpu_magic.errors import RefusedError

__all__ = ["SUPPORTED_PRECISIONS", "HPUPrecisionPluginBase"]

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed")


class HPUPrecisionPluginBase:
    """What ``HPUPrecisionPlugin`` does, apart from the Lightning class it derives from.

    Parameters
    ----------
    precision
        ``"32-true"`` or ``"bf16-mixed"``.
    device
        Device type given to ``torch.autocast``.

    Raises
    ------
    RefusedError
        For any other precision.
    """

    def __init__(self, precision: str = "32-true", device: str = "hpu") -> None:
        if precision not in SUPPORTED_PRECISIONS:
            raise RefusedError(
                f"precision={precision!r} is not supported on hpu: "
                f"write {' or '.join(map(repr, SUPPORTED_PRECISIONS))}."
            )
        super().__init__()
        self.precision = precision
        self.device = device

    def autocast_context_manager(self) -> torch.autocast:
        """Return the autocast that each step of the model runs under."""
        return torch.autocast(
            self.device, dtype=torch.bfloat16, enabled=self.precision == "bf16-mixed"
        )

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Run a step of the model under this precision."""
        if self.precision == "32-true":
            yield
            return
        with self.autocast_context_manager():
            yield
