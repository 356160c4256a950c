"""The precision plug-in: float32, autocast to a 16-bit dtype, or autocast with FP8 layers.

FP8 training uses the vendor's Transformer Engine, and FP8 inference uses Neural Compressor.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch

from hpu_magic.errors import HPUError
from hpu_magic.lightning import fp8, hmp
from hpu_magic.lightning.fp8_conversion import FP8Conversion
from hpu_magic.runtime.device import device as card

SUPPORTED_PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
"""Values of ``precision`` in ``Trainer`` and ``Fabric``; the plug-in also supports "fp8"."""
PRECISION_INPUT = Literal["32", "32-true", "bf16", "bf16-mixed", "16", "16-mixed", "fp8"]
"""Values of the plug-in's `precision` parameter."""
_SHORT = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def _with_scaled_losses(name: str) -> Any:
    """Return a method that calls Lightning's ``MixedPrecision`` if the precision is ``"16-mixed"``.

    Loss scaling prevents small 16-bit gradients from underflowing to zero.
    """

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        scales = self.precision == "16-mixed"
        return getattr(self._mixed if scales else super(_ScaledLosses, self), name)(*args, **kwargs)

    return method


class _ScaledLosses:
    # ``Trainer`` scales the loss in `pre_backward`, and ``Fabric`` in `backward`.
    pre_backward = _with_scaled_losses("pre_backward")
    backward = _with_scaled_losses("backward")
    optimizer_step = _with_scaled_losses("optimizer_step")
    clip_gradients = _with_scaled_losses("clip_gradients")
    unscale_gradients = _with_scaled_losses("unscale_gradients")
    state_dict = _with_scaled_losses("state_dict")
    load_state_dict = _with_scaled_losses("load_state_dict")


class HPUPrecisionPluginBase(_ScaledLosses, FP8Conversion):
    """The precision of computations on the card.

    Parameters
    ----------
    precision
        ``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"`` with loss scaling, or ``"fp8"``, which is
        like ``"bf16-mixed"`` but layers of the vendor's Transformer Engine compute in FP8.
    device
        Device type for ``torch.autocast``.
    recipe
        With ``"fp8"``: how to compute the scales; a ``DelayedScaling`` or a dictionary of its
        arguments.
    replace_layers
        With ``"fp8"``: whether to replace linear layers with Transformer Engine layers, in
        `convert_modules` and at the start of a fit.
    opt_level, verbose, bf16_file_path, fp32_file_path
        Options of HMP, the predecessor of autocast. If HMP is used, PyTorch's functions cast
        their tensors to bfloat16 or float32 according to operator lists for the rest of the
        process, and `precision` must be ``16`` or ``"bf16-mixed"``.

    Raises
    ------
    HPUError
        The precision is unknown, this card or the installed packages do not support it, or it does
        not support one of the options.
    """

    _mixed_precision_class: type[Any]

    def __init__(
        self,
        precision: str = "32-true",
        device: str = "hpu",
        recipe: Mapping[str, Any] | Any | None = None,
        replace_layers: bool = False,
        opt_level: str | None = None,
        verbose: bool = False,
        bf16_file_path: str | os.PathLike[str] | None = None,
        fp32_file_path: str | os.PathLike[str] | None = None,
    ) -> None:
        by_hmp = bool(opt_level or verbose or bf16_file_path or fp32_file_path)
        precision = _checked(precision, by_hmp, options=recipe is not None or replace_layers)
        if by_hmp:
            hmp.convert(opt_level, verbose, bf16_file_path, fp32_file_path)
        super().__init__()
        self.precision = precision
        self.device = device
        self._by_hmp = by_hmp
        self._set_conversion(recipe, replace_layers)
        # Lightning's plug-in; with "16-mixed", it scales losses and gradients.
        self._mixed: Any = None
        if self._casts():
            sixteen_bits = "16-mixed" if precision == "16-mixed" else "bf16-mixed"
            self._mixed = self._mixed_precision_class(sixteen_bits, device)

    def autocast_context_manager(self) -> torch.autocast:
        """Return the autocast context for running a step of the model."""
        dtype = torch.float16 if self.precision == "16-mixed" else torch.bfloat16
        return torch.autocast(self.device, dtype=dtype, enabled=self._casts())

    def _casts(self) -> bool:
        return self.precision != "32-true" and not self._by_hmp

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Run a step of the model in this precision."""
        if not self._casts():
            yield
            return
        with self.autocast_context_manager():
            if self.precision == "fp8" and not self._infers:
                with fp8.autocast(self.recipe):
                    yield
            else:
                yield


def _checked(precision: str, by_hmp: bool, options: bool) -> str:
    """Check that a precision supports the options, and return its long name.

    Raises
    ------
    HPUError
        The precision is unknown, this card does not support it, or it does not support the options.
    """
    known = (*SUPPORTED_PRECISIONS, "fp8")
    precision = _SHORT.get(str(precision), precision)
    if precision not in known:
        raise HPUError(
            f"precision={precision!r} is not supported on hpu: "
            f"write {' or '.join(map(repr, known))}."
        )
    if by_hmp:
        if precision not in ("16-mixed", "bf16-mixed"):
            raise HPUError(
                "opt_level, verbose, bf16_file_path and fp32_file_path are options of "
                f"precision='bf16-mixed', not of {precision!r}: remove them."
            )
        precision = "bf16-mixed"
    if precision == "16-mixed" and card.generation() == "GAUDI":
        raise HPUError(
            "precision='16-mixed' needs a Gaudi2 or later card, but this machine has GAUDI: "
            "write precision='bf16-mixed'."
        )
    fp8.check_options(precision, options)
    return precision


class FabricPrecisionBase(HPUPrecisionPluginBase):
    """The precision of computations on the card, with the options of the ``Trainer`` plug-in.

    Inputs and outputs are converted as in Fabric's ``MixedPrecision``.
    """

    def convert_input(self, data: Any) -> Any:
        """Convert a model's floating-point inputs to the 16-bit dtype."""
        return data if self._mixed is None else self._mixed.convert_input(data)

    def convert_output(self, data: Any) -> Any:
        """Convert a model's floating-point outputs to the default dtype."""
        return data if self._mixed is None else self._mixed.convert_output(data)
