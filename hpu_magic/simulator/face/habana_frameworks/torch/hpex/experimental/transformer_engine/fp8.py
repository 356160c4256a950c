"""Regions in which modules compute in FP8."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._first_generation import NO_FP8
from habana_frameworks.torch.hpex.experimental.transformer_engine import _scales
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import (
    DelayedScaling,
    Format,
)

_FORCED_ROUNDING = "PT_TE_FORCE_SR_BWD"


@dataclass(frozen=True)
class Region:
    """The arguments of `fp8_autocast`, and the step to which the region belongs."""

    enabled: bool
    recipe: DelayedScaling
    force_measurement: bool | None
    group: Any
    step: Step


class Step:
    """A training step: one outermost region, including the regions nested in it.

    `measured` maps each measured module, in the order of first use, to the group of processes that
    share measurements.
    """

    def __init__(self) -> None:
        self.measured: dict[Any, Any] = {}


class _Regions(threading.local):
    def __init__(self) -> None:
        self.entered: list[Region] = []


_regions = _Regions()


class fp8_autocast(contextlib.ContextDecorator):
    """Context manager or decorator that lets modules of this package compute in FP8.

    The region must only contain the forward pass; the backward pass uses the same settings. Each
    outermost region counts as a step. Scales are computed from the measurements of earlier steps,
    at the recipe's interval. Replays of a captured graph also update the scales.

    Parameters
    ----------
    enabled : bool
        If False, modules compute in the dtype of their inputs, even if an outer region enables FP8.
    fp8_recipe : recipe.DelayedScaling, optional
        The recipe to use; defaults to ``DelayedScaling()``.
    force_measurement : bool, optional
        Whether to measure in this step, regardless of the recipe's interval.
        `FP8GlobalStateManager.set_measurement_mode` sets it for all steps.
    fp8_group : torch.distributed.ProcessGroup, optional
        Processes that share amaxes; defaults to all processes. All of them must use the same
        modules in the same order.

    Raises
    ------
    TypeError
        `fp8_recipe` is not a recipe.
    RuntimeError
        Raised on entry if the card is a GAUDI, which does not support FP8.
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
                f"fp8_recipe={fp8_recipe!r} is not a recipe; use recipe.DelayedScaling(...)."
            )
        self._enabled = bool(enabled)
        self._recipe = fp8_recipe or get_default_fp8_recipe()
        self._force_measurement = force_measurement
        self._group = fp8_group

    def __enter__(self) -> None:
        FP8GlobalStateManager.fp8_autocast_enter(
            self._enabled, self._recipe, self._force_measurement, self._group
        )

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        FP8GlobalStateManager.fp8_autocast_exit(completed=kind is None)


def get_default_fp8_recipe() -> DelayedScaling:
    """Return the default recipe."""
    return DelayedScaling()


def get_fp8_te_sr(fp8_recipe: DelayedScaling, fprop: bool) -> bool:
    """Return whether casts use stochastic rounding.

    The forward pass always rounds to nearest. With ``Format.HYBRID``, gradients are rounded
    stochastically. To round them to nearest, or stochastically with every format, set
    ``PT_TE_FORCE_SR_BWD`` to 0 or 1. Other values of this variable raise ValueError.
    """
    forced = os.environ.get(_FORCED_ROUNDING, "").strip()
    if forced not in ("", "0", "1"):
        raise ValueError(
            f"{_FORCED_ROUNDING}={forced!r} is not 0 or 1; use 1 to round gradients "
            "stochastically, or 0 to round them to nearest."
        )
    if fprop:
        return False
    return fp8_recipe.fp8_format is Format.HYBRID if forced == "" else forced == "1"


class FP8GlobalStateManager:
    """Manages the regions of each thread, and the measurement mode of all threads.

    `resets` counts state resets; after a reset, modules count their steps from 0 again.
    """

    resets = 0
    _manual: bool | None = None

    @classmethod
    def is_fp8_available(cls) -> tuple[bool, str]:
        """Return whether the card supports FP8 and, if not, why."""
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
        """Enter a region; raise RuntimeError if it is enabled on a first-generation card."""
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
        """Leave the innermost region; leaving the outermost one reduces amaxes across processes.

        Pass ``completed=False`` if an exception ended the region; its measurements then count
        toward the next step. This method has no effect after `reset_global_state`.
        """
        if not _regions.entered:
            return
        measured = _regions.entered.pop().step.measured
        if _regions.entered:
            return
        groups = dict(measured)
        measured.clear()  # modules refer to the step, so the step must not keep them alive
        if completed:
            for group in dict.fromkeys(groups.values()):
                amaxes = [module.forward_amaxes() for module in groups if groups[module] is group]
                _scales.reduce_maximum([each for of_module in amaxes for each in of_module], group)
            for module in groups:
                module.end_forward_measurement()

    @classmethod
    def region(cls) -> Region | None:
        """Return the innermost region, or None outside all regions."""
        return _regions.entered[-1] if _regions.entered else None

    @classmethod
    def is_fp8_enabled(cls) -> bool:
        """Return whether the current region enables FP8."""
        region = cls.region()
        return region is not None and region.enabled

    @classmethod
    def get_fp8_recipe(cls) -> DelayedScaling:
        """Return the recipe of the current region, or the default recipe outside all regions."""
        region = cls.region()
        return region.recipe if region else get_default_fp8_recipe()

    @classmethod
    def get_fp8_group(cls) -> Any:
        """Return the process group of the current region."""
        region = cls.region()
        return region.group if region else None

    @classmethod
    def set_measurement_mode(cls, manual: bool, manual_value: bool = True) -> None:
        """Measure in every step, in no step, or at the recipe's interval.

        If `manual` is true, `manual_value` determines whether to measure. Otherwise, which is
        the default, the recipe's interval is used.
        """
        cls._manual = bool(manual_value) if manual else None

    @classmethod
    def get_manual_measurement_mode(cls) -> bool | None:
        """Return whether to measure in the current step, or None if the recipe decides."""
        region = cls.region()
        forced = region.force_measurement if region else None
        return cls._manual if forced is None else forced

    @classmethod
    def reset_global_state(cls) -> None:
        """Leave all regions of this thread, and reset the step counts and the measurement mode."""
        _regions.entered.clear()
        cls._manual = None
        cls.resets += 1


is_fp8_available = FP8GlobalStateManager.is_fp8_available
is_fp8_enabled = FP8GlobalStateManager.is_fp8_enabled
