"""The precision plug-in: fp32, autocast of the card to bfloat16, or 8 bits on top of that."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from hpu_magic.errors import RefusedError
from hpu_magic.lightning import fp8

__all__ = ["SUPPORTED_PRECISIONS", "HPUPrecisionPluginBase"]

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed")
"""What ``Trainer(precision=...)`` takes; the plug-in takes "fp8" as well."""


class HPUPrecisionPluginBase:
    """What ``HPUPrecisionPlugin`` does, apart from the Lightning class it derives from.

    Parameters
    ----------
    precision
        ``"32-true"``, ``"bf16-mixed"``, or ``"fp8"``: as ``"bf16-mixed"``, with layers of the
        vendor's Transformer Engine in 8 bits.
    device
        Device type given to ``torch.autocast``.
    recipe
        With ``"fp8"``: how scales follow what is measured, a ``DelayedScaling`` or a dictionary of
        its arguments.
    replace_layers
        With ``"fp8"``: put layers of the Transformer Engine in the place of linear ones. It
        happens in `convert_modules`, and where a fit begins.

    Raises
    ------
    RefusedError
        For any other precision, for ``"fp8"`` on a card of the first generation or without the
        Transformer Engine, and for options of another precision.
    """

    def __init__(
        self,
        precision: str = "32-true",
        device: str = "hpu",
        recipe: Mapping[str, Any] | Any | None = None,
        replace_layers: bool = False,
    ) -> None:
        known = (*SUPPORTED_PRECISIONS, "fp8")
        if precision not in known:
            raise RefusedError(
                f"precision={precision!r} is not supported on hpu: "
                f"write {' or '.join(map(repr, known))}."
            )
        if precision == "fp8":
            fp8.require_fp8()
            recipe = fp8.recipe_of(recipe)
        elif recipe is not None or replace_layers:
            raise RefusedError(
                f"recipe and replace_layers are options of precision='fp8', not of {precision!r}: "
                "leave them out."
            )
        super().__init__()
        self.precision = precision
        self.device = device
        self.recipe = recipe
        self.replace_layers = replace_layers

    def convert_modules(self, module: torch.nn.Module) -> torch.nn.Module:
        """Make a model ready for training in 8 bits.

        A model that resumes from a checkpoint is converted before the fit.

        Returns
        -------
        torch.nn.Module
            `module`, changed in place; where it is a linear layer itself, its replacement.

        Raises
        ------
        RefusedError
            The precision is not ``"fp8"``.
        """
        if self.precision != "fp8":
            raise RefusedError(
                f"convert_modules is for precision='fp8', and this plug-in has {self.precision!r}."
            )
        return fp8.with_replaced_layers(module) if self.replace_layers else module

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Convert the model where a fit begins, unless it is converted already."""
        return self.convert_modules(module) if self.replace_layers else module

    def autocast_context_manager(self) -> torch.autocast:
        """Return the autocast that each step of the model runs under."""
        return torch.autocast(
            self.device, dtype=torch.bfloat16, enabled=self.precision != "32-true"
        )

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Run a step of the model under this precision."""
        if self.precision == "32-true":
            yield
            return
        with self.autocast_context_manager():
            if self.precision == "fp8":
                with fp8.autocast(self.recipe):
                    yield
            else:
                yield
