"""What modules that compute in 8 bits have in common: scales, steps, and their state."""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from enum import IntEnum
from functools import partial
from typing import Any

import torch
from torch import nn

from . import _scales
from ._uses import Use, Uses
from .fp8 import FP8GlobalStateManager, Region, Step
from .recipe import DelayedScaling, Format
from .utils import FP8BwdTensors, FP8FwdTensors, FP8TensorMeta

_INPUT_TYPES = (torch.float32, torch.bfloat16)
_OF_FORWARD = ("scaling_fwd", "scaling_hybrid")


class Fp8Module(nn.Module):
    """A module that computes in 8 bits within `fp8_autocast`.

    Attributes
    ----------
    fp8_meta : dict
        Once the module ran in 8 bits: "scaling_fwd" and "scaling_bwd", each a `FP8TensorMeta`, and
        the "recipe". There is a "scaling_hybrid" where inputs and weights are cast to the type of
        the gradients as well. They are part of the module's ``state_dict``.
    """

    def __init__(self, params_dtype: torch.dtype | None) -> None:
        super().__init__()
        if params_dtype not in (None, *_INPUT_TYPES, torch.float16):
            raise ValueError(
                f"params_dtype={params_dtype!r} cannot be had: write torch.bfloat16 or "
                "torch.float32."
            )
        self.fp8_meta: dict[str, Any] = {}
        self._params_dtype = params_dtype
        self._steps = 0  # those that could measure
        self._step: Step | None = None  # the last
        self._measures = False  # in that step
        self._uses = Uses()
        self._gradients_measured = False

    def begin_forward(self, *tensors: torch.Tensor) -> Use | None:
        """Return how to compute; None for the type of the input, without 8 bits.

        Raises
        ------
        TypeError
            One of the tensors to cast is of a type, or on a device, without casts to 8 bits.
        """
        if torch._C._current_graph_task_id() != -1:
            # A checkpointed forward pass, again: as it was, with the scales that it had.
            use = self._uses.repeated()
            if use is not None and use.measures:
                self._update_where_backward_ends(use)
            return use and replace(
                use, measures_forward=False, has_backward=torch.is_grad_enabled()
            )
        use = self._new_use(tensors)
        self._uses.note(use)
        return use

    def _new_use(self, tensors: tuple[torch.Tensor, ...]) -> Use | None:
        region = FP8GlobalStateManager.region()
        if region is None or not region.enabled or not self.takes(region.recipe):
            return None
        for tensor in tensors:
            self._require_castable(tensor)
        self._prepare_meta(region.recipe, tensors[0].device)
        self._begin_step(region)
        hybrid = self.fp8_meta.get("scaling_hybrid")
        return Use(
            recipe=region.recipe,
            scale=self.fp8_meta["scaling_fwd"].scale.clone(),
            hybrid_scale=hybrid and hybrid.scale.clone(),
            measures=self._measures,
            measures_forward=self._measures,
            has_backward=torch.is_grad_enabled(),
            out_dtype=self._out_dtype(),
            group=region.group,
        )

    def metas(self, recipe: DelayedScaling) -> dict[str, type[IntEnum]]:
        """Return what has scales with this recipe, by the metas that they are in."""
        return {"scaling_fwd": FP8FwdTensors, "scaling_bwd": FP8BwdTensors}

    def takes(self, recipe: DelayedScaling) -> bool:
        """Tell whether the module computes in 8 bits with this recipe."""
        return True

    def _require_castable(self, tensor: torch.Tensor) -> None:
        name = type(self).__name__
        if tensor.device.type != "hpu":
            raise TypeError(
                f"{name} computes in 8 bits on hpu, but a tensor of shape {tuple(tensor.shape)} is "
                f"on {tensor.device.type}: move it with .to('hpu')."
            )
        if tensor.dtype not in _INPUT_TYPES:
            raise TypeError(
                f"{name} casts float32 and bfloat16 to 8 bits, but a tensor of shape "
                f"{tuple(tensor.shape)} is {tensor.dtype}: convert it with .to(torch.bfloat16)."
            )

    def note_forward(self, tensor: IntEnum, amax: torch.Tensor) -> None:
        """Enter the largest magnitude of an input or a weight."""
        for name in _OF_FORWARD:
            if name in self.fp8_meta:
                _scales.note_amax(self.fp8_meta[name], tensor, amax)

    def gradient_scales(self, use: Use) -> torch.Tensor:
        """Return the scales of gradients; ones where a new state came after the forward pass."""
        meta = self.fp8_meta.get("scaling_bwd")
        if meta is None:
            return use.scale.new_ones(len(self.metas(use.recipe)["scaling_bwd"]))
        scales: torch.Tensor = meta.scale
        return scales

    def note_backward(self, tensor: IntEnum, amax: torch.Tensor, use: Use) -> None:
        """Enter the largest magnitude of a gradient; its scale follows where backward ends."""
        if "scaling_bwd" not in self.fp8_meta:
            return
        _scales.note_amax(self.fp8_meta["scaling_bwd"], tensor, amax)
        self._gradients_measured = True
        self._update_where_backward_ends(use)

    def forward_amaxes(self) -> list[torch.Tensor]:
        """Return what processes agree on; nothing where the recipe has them not to."""
        if not self.fp8_meta["recipe"].reduce_amax:
            return []
        return [
            self.fp8_meta[name].amax_history[0] for name in _OF_FORWARD if name in self.fp8_meta
        ]

    def update_forward_scales(self) -> None:
        """Compute the scales of inputs and weights for the next step."""
        recipe = self.fp8_meta["recipe"]
        _scales.end_step(self.fp8_meta["scaling_fwd"], recipe.fp8_format.forward, recipe)
        if "scaling_hybrid" in self.fp8_meta:
            _scales.end_step(self.fp8_meta["scaling_hybrid"], recipe.fp8_format.backward, recipe)

    def _update_where_backward_ends(self, use: Use) -> None:
        update = partial(self._update_backward_scales, use.group)
        torch.autograd.Variable._execution_engine.queue_callback(update)

    def _update_backward_scales(self, group: Any) -> None:
        # Each use of the module in a backward pass asks for this; the first call does it. What runs
        # within another backward pass, as a reentrant checkpoint does, leaves it to that one.
        if self._gradients_measured and torch._C._current_autograd_node() is None:
            self._gradients_measured = False
            recipe, meta = self.fp8_meta["recipe"], self.fp8_meta["scaling_bwd"]
            with torch.no_grad():
                if recipe.reduce_amax:
                    _scales.agree([meta.amax_history[0]], group)
                _scales.end_step(meta, recipe.fp8_format.backward, recipe)

    def _begin_step(self, region: Region) -> None:
        if self._step is not region.step:
            self._step = region.step
            self._measures = False
            if self.training:
                due = self._steps % region.recipe.interval == 0
                forced = region.force_measurement
                self._measures = due if forced is None else forced
                self._steps += 1
        if self._measures:
            region.step.measured[self] = region.group

    # Made in inference mode, they could not be written in training.
    @torch.inference_mode(False)
    def _prepare_meta(self, recipe: DelayedScaling, device: torch.device) -> None:
        before, made = self.fp8_meta, {"recipe": recipe}
        same_format = "recipe" in before and before["recipe"].fp8_format == recipe.fp8_format
        for name, tensors in self.metas(recipe).items():
            if same_format and name in before:
                meta = _scales.moved(before[name], device)
                meta = _scales.with_history_of(meta, recipe.amax_history_len)
            else:
                meta = _scales.new_meta(len(tensors), recipe.amax_history_len, device)
            made[name] = meta
        self.fp8_meta = made  # whole: another thread may compute with the module

    def _out_dtype(self) -> torch.dtype:
        if not torch.is_autocast_enabled("hpu"):
            return self._params_dtype or torch.bfloat16
        dtype = torch.get_autocast_dtype("hpu")
        if dtype not in _INPUT_TYPES:
            raise TypeError(
                f"{type(self).__name__} computes in 8 bits under autocast to bfloat16, not to "
                f"{dtype}: write torch.autocast('hpu', dtype=torch.bfloat16)."
            )
        return dtype

    def get_extra_state(self) -> dict[str, Any]:
        """Return the scales, on the CPU, as part of the ``state_dict``."""
        if "recipe" not in self.fp8_meta:
            return {}
        recipe = asdict(self.fp8_meta["recipe"])
        metas = {
            name: {key: each.cpu() for key, each in vars(meta).items()}
            for name, meta in self.fp8_meta.items()
            if name != "recipe"
        }
        recipe["fp8_format"] = recipe["fp8_format"].name
        limit = _scales.largest(torch.float8_e4m3fn)
        return {"recipe": recipe, "steps": self._steps, "metas": metas, "e4m3_limit": limit}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take scales from a ``state_dict``; from an empty state, those of a new module.

        Scales of another generation are converted to the range that E4M3 has on this card.
        """
        self.fp8_meta = {}
        self._step, self._gradients_measured = None, False
        self._steps = 0
        if not isinstance(state, dict):
            warnings.warn(
                f"The scales of this {type(self).__name__} begin anew: what its state has in their "
                f"place, a {type(state).__name__}, is of another package.",
                stacklevel=2,
            )
            return
        self._steps = state.get("steps", 0)
        if "recipe" in state:
            recipe = state["recipe"]
            formats = Format[recipe["fp8_format"]]
            self.fp8_meta["recipe"] = DelayedScaling(**recipe | {"fp8_format": formats})
            for name, meta in state["metas"].items():
                copied = FP8TensorMeta(**{key: each.clone() for key, each in meta.items()})
                dtype = formats.forward if name == "scaling_fwd" else formats.backward
                if dtype == torch.float8_e4m3fn and "e4m3_limit" in state:
                    _scales.fit(copied, _scales.largest(dtype) / state["e4m3_limit"])
                self.fp8_meta[name] = copied

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Weights of an ordinary layer have no scales: they begin anew.
        state.setdefault(f"{prefix}_extra_state", {})
        super()._load_from_state_dict(state, prefix, *rest)
