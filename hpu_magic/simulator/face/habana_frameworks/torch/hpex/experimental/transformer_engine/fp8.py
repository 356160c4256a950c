"""The region in which modules compute in 8 bits."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from habana_frameworks.torch import hpu
from habana_frameworks.torch._first_generation import NO_FP8
from habana_frameworks.torch.hpex.experimental.transformer_engine import _scales
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import (
    DelayedScaling,
    Format,
)

import torch

_FORCED_ROUNDING = "PT_TE_FORCE_SR_BWD"


class Measured(Protocol):
    """A module whose tensors were measured."""

    def forward_amaxes(self) -> list[torch.Tensor]:
        """Return what processes agree on: the largest magnitudes of this step."""

    def end_forward_measurement(self) -> None:
        """Have scales follow what was measured, from the next step on that updates them."""


@dataclass(frozen=True)
class Region:
    """What a `fp8_autocast` was given, and the step that it belongs to."""

    enabled: bool
    recipe: DelayedScaling
    force_measurement: bool | None
    group: Any
    step: Step


class Step:
    """What an outermost region is: a region within it belongs to the same step.

    Attributes
    ----------
    measured : dict
        The modules that were measured in it, in the order of their first use, each with the
        processes that agree on what was measured.
    """

    def __init__(self) -> None:
        self.measured: dict[Measured, Any] = {}


class _Regions(threading.local):
    def __init__(self) -> None:
        self.entered: list[Region] = []


_regions = _Regions()


class fp8_autocast(contextlib.ContextDecorator):
    """Let modules of this package compute in 8 bits, as a block or as a decorator.

    It belongs around the forward pass alone: gradients follow what their forward pass did. An
    outermost region is a step. Scales follow what earlier steps measured, as the recipe's interval
    says. A captured graph repeats its region: scales follow in its replays, too.

    Parameters
    ----------
    enabled : bool
        False to compute in the type of the inputs, within another region too.
    fp8_recipe : recipe.DelayedScaling, optional
        By default ``DelayedScaling()``.
    force_measurement : bool, optional
        True to measure in this step, False not to, regardless of the recipe's interval, as
        `FP8GlobalStateManager.set_measurement_mode` does for all steps.
    fp8_group : torch.distributed.ProcessGroup, optional
        The processes that agree on the largest magnitudes, by default all. Each of them uses the
        same modules in the same order.

    Raises
    ------
    TypeError
        The recipe is none.
    RuntimeError
        On entry, where the card is of the first generation.
    """

    def __init__(
        self,
        enabled: bool = True,
        fp8_recipe: DelayedScaling | None = None,
        force_measurement: bool | None = None,
        fp8_group: Any = None,
    ) -> None:
        if fp8_recipe is not None and not isinstance(fp8_recipe, DelayedScaling):
            raise TypeError(
                f"fp8_recipe={fp8_recipe!r} is no recipe: write recipe.DelayedScaling(...)."
            )
        self._enabled = bool(enabled)
        self._recipe = fp8_recipe or get_default_fp8_recipe()
        self._force_measurement = force_measurement
        self._group = fp8_group

    def __enter__(self) -> None:
        FP8GlobalStateManager.fp8_autocast_enter(
            self._enabled, self._recipe, self._force_measurement, self._group
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        FP8GlobalStateManager.fp8_autocast_exit(completed=kind is None)


def get_default_fp8_recipe() -> DelayedScaling:
    """Return the recipe of a region that names none."""
    return DelayedScaling()


def get_fp8_te_sr(fp8_recipe: DelayedScaling, fprop: bool) -> bool:
    """Return whether casts round stochastically.

    Forward passes round to nearest; gradients round stochastically with ``Format.HYBRID``, or as
    ``PT_TE_FORCE_SR_BWD`` says, which is 0 or 1.

    Raises
    ------
    ValueError
        The variable has another value.
    """
    forced = os.environ.get(_FORCED_ROUNDING, "").strip()
    if forced not in ("", "0", "1"):
        raise ValueError(
            f"{_FORCED_ROUNDING}={forced!r} is not 0 or 1; write 1 for gradients that round "
            "stochastically, 0 for gradients that round to nearest."
        )
    if fprop:
        return False
    return fp8_recipe.fp8_format is Format.HYBRID if forced == "" else forced == "1"


class FP8GlobalStateManager:
    """The region that the calling thread is in, and the measurement mode of all threads.

    Attributes
    ----------
    resets : int
        How often the state was reset: modules count their steps from there.
    """

    resets = 0
    _manual: bool | None = None

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        """Tell whether this card computes in 8 bits, and if not, why."""
        if hpu.get_device_name() == "GAUDI":
            return False, NO_FP8
        return True, ""

    @classmethod
    def fp8_autocast_enter(
        cls,
        enabled: bool = True,
        fp8_recipe: DelayedScaling | None = None,
        force_measurement: bool | None = None,
        fp8_group: Any = None,
    ) -> None:
        """Begin a region.

        Raises
        ------
        RuntimeError
            It is enabled, and the card is of the first generation.
        """
        if enabled:
            available, why_not = cls.is_fp8_available()
            if not available:
                raise RuntimeError(why_not)
        entered = _regions.entered
        if force_measurement is None and entered:
            force_measurement = entered[-1].force_measurement
        entered.append(
            Region(
                enabled,
                fp8_recipe or get_default_fp8_recipe(),
                force_measurement,
                fp8_group,
                entered[-1].step if entered else Step(),
            )
        )

    @classmethod
    def fp8_autocast_exit(cls, completed: bool = True) -> None:
        """End the innermost region; at the end of the outermost one processes agree.

        A region that `reset_global_state` has left needs no end.

        Parameters
        ----------
        completed : bool
            False where an exception ended it. What was measured counts for the next step then.
        """
        if not _regions.entered:
            return
        measured = _regions.entered.pop().step.measured
        if _regions.entered:
            return
        groups = dict(measured)
        measured.clear()  # modules keep the step, and it is not to keep them
        if completed:
            for group in dict.fromkeys(groups.values()):
                amaxes = [module.forward_amaxes() for module in groups if groups[module] is group]
                _scales.agree([each for of_module in amaxes for each in of_module], group)
            for module in groups:
                module.end_forward_measurement()

    @classmethod
    def region(cls) -> Region | None:
        """Return the innermost region, None outside of all."""
        return _regions.entered[-1] if _regions.entered else None

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """Tell whether modules compute in 8 bits here."""
        region = cls.region()
        return region is not None and region.enabled

    @classmethod
    def get_fp8_recipe(cls) -> DelayedScaling:
        """Return the region's recipe, the default one outside."""
        region = cls.region()
        return region.recipe if region else get_default_fp8_recipe()

    @classmethod
    def get_fp8_group(cls) -> Any:
        """Return the region's group of processes."""
        region = cls.region()
        return region.group if region else None

    @classmethod
    def set_measurement_mode(cls, manual: bool, manual_value: bool = True) -> None:
        """Measure in all steps or in none, or as recipes say.

        Parameters
        ----------
        manual : bool
            False to measure as the interval of the recipe says, which is the default.
        manual_value : bool
            Whether to measure, if `manual`.
        """
        cls._manual = bool(manual_value) if manual else None

    @classmethod
    def get_manual_measurement_mode(cls) -> bool | None:
        """Return whether steps are measured; None if the recipe says so."""
        region = cls.region()
        forced = region.force_measurement if region else None
        return cls._manual if forced is None else forced

    @classmethod
    def reset_global_state(cls) -> None:
        """Leave all regions of the calling thread, count steps from 0, measure as recipes say."""
        _regions.entered.clear()
        cls._manual = None
        cls.resets += 1


is_fp8_available = FP8GlobalStateManager.is_fp8_available
is_fp8_enabled = FP8GlobalStateManager.is_fp8_enabled
