"""Base class for modules that compute in FP8; it manages their scales, steps and state."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import Any

from habana_frameworks.torch.hpex.experimental.transformer_engine import _scales
from habana_frameworks.torch.hpex.experimental.transformer_engine._uses import Use, Uses
from habana_frameworks.torch.hpex.experimental.transformer_engine.fp8 import (
    FP8GlobalStateManager,
    Region,
    Step,
)
from habana_frameworks.torch.hpex.experimental.transformer_engine.recipe import (
    DelayedScaling,
    Format,
)
from habana_frameworks.torch.hpex.experimental.transformer_engine.utils import (
    FP8BwdTensors,
    FP8FwdTensors,
    FP8TensorMeta,
)

import torch
from torch import nn

_INPUT_TYPES = (torch.float32, torch.bfloat16)
_OF_FORWARD = ("scaling_fwd", "scaling_hybrid")


@dataclass
class _Progress:
    """The state of a module within the current interval of its recipe.

    `steps` is the number of training steps, `forced` indicates whether measurement was forced on or
    off in the last step, and `pending` lists the metas whose scales do not yet reflect the latest
    measurements.
    """

    steps: int = 0
    forced: bool = False
    pending: list[str] = field(default_factory=list)


class Fp8Module(nn.Module):
    """A module that computes in FP8 within `fp8_autocast`.

    Attributes
    ----------
    fp8_meta : dict
        After the first run in FP8, this contains "scaling_fwd" and "scaling_bwd", each an
        `FP8TensorMeta`, and "recipe". If inputs and weights are cast to the dtype of the gradients,
        `fp8_meta` also contains "scaling_hybrid". All of these entries are part of the module's
        ``state_dict``.
    """

    def __init__(self, params_dtype: torch.dtype | None) -> None:
        super().__init__()
        if params_dtype not in (None, *_INPUT_TYPES, torch.float16):
            raise ValueError(
                f"params_dtype={params_dtype!r} is not supported; use torch.bfloat16 or "
                "torch.float32."
            )
        self.fp8_meta: dict[str, Any] = {}
        self._params_dtype = params_dtype
        self._progress = _Progress()
        self._resets = FP8GlobalStateManager.resets
        self._step: Step | None = None  # the last step
        self._measures = self._updates = False  # in the last step
        self._backward_step: object = None
        self._uses = Uses()
        self._gradients_measured = False

    def begin_forward(self, *tensors: torch.Tensor) -> Use | None:
        """Return the settings for the forward pass, or None to compute in the dtype of the input.

        Raises TypeError if a tensor's dtype or device does not support casts to FP8.
        """
        if torch._C._current_graph_task_id() != -1:
            # Activation checkpointing recomputes a forward pass with the original scales.
            use = self._uses.repeated()
            if use is not None and use.measures:
                self._reduce_after_backward(use)
            return use and replace(
                use, measures_forward=False, has_backward=torch.is_grad_enabled()
            )
        use = self._new_use(tensors)
        self._uses.note(use)
        return use

    def _new_use(self, tensors: tuple[torch.Tensor, ...]) -> Use | None:
        region = FP8GlobalStateManager.region()
        if region is None or not region.enabled or not self.supports(region.recipe):
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
            step=region.step,
            updates=self._updates,
            measures=self._measures,
            measures_forward=self._measures,
            has_backward=torch.is_grad_enabled(),
            out_dtype=self._out_dtype(),
            group=region.group,
        )

    def metas(self, recipe: DelayedScaling) -> dict[str, type[IntEnum]]:
        """Map each entry of `fp8_meta` to an enum of the tensors whose scales it contains."""
        return {"scaling_fwd": FP8FwdTensors, "scaling_bwd": FP8BwdTensors}

    def supports(self, recipe: DelayedScaling) -> bool:
        """Return whether the module computes in FP8 with this recipe."""
        return True

    def _require_castable(self, tensor: torch.Tensor) -> None:
        name = type(self).__name__
        if tensor.device.type != "hpu":
            raise TypeError(
                f"{name} computes in FP8 on hpu, but a tensor of shape {tuple(tensor.shape)} is "
                f"on {tensor.device.type}; move it with .to('hpu')."
            )
        if tensor.dtype not in _INPUT_TYPES:
            raise TypeError(
                f"{name} can only cast float32 and bfloat16 to FP8, but a tensor of shape "
                f"{tuple(tensor.shape)} is {tensor.dtype}; convert it with .to(torch.bfloat16)."
            )

    def note_forward(self, tensor: IntEnum, amax: torch.Tensor) -> None:
        """Record the largest magnitude of an input or a weight."""
        for name in _OF_FORWARD:
            if name in self.fp8_meta:
                _scales.note_amax(self.fp8_meta[name], tensor, amax)

    def gradient_scales(self, use: Use) -> torch.Tensor:
        """Return the gradient scales, which are 1 if a state was loaded after the forward pass."""
        meta = self.fp8_meta.get("scaling_bwd")
        if meta is None:
            return use.scale.new_ones(len(self.metas(use.recipe)["scaling_bwd"]))
        if self._backward_step is not use.step:
            self._backward_step = use.step
            if use.updates:
                self._update_scales("scaling_bwd")
        return meta.scale

    def note_backward(self, tensor: IntEnum, amax: torch.Tensor, use: Use) -> None:
        """Record the largest magnitude of a gradient."""
        if "scaling_bwd" not in self.fp8_meta:
            return
        _scales.note_amax(self.fp8_meta["scaling_bwd"], tensor, amax)
        self._gradients_measured = True
        self._reduce_after_backward(use)

    def forward_amaxes(self) -> list[torch.Tensor]:
        """Return the amaxes to reduce across processes, if the recipe requires it."""
        if not self.fp8_meta["recipe"].reduce_amax:
            return []
        return [
            self.fp8_meta[name].amax_history[0] for name in _OF_FORWARD if name in self.fp8_meta
        ]

    def end_forward_measurement(self) -> None:
        """Mark the scales of inputs and weights for an update."""
        self._await_update(*_OF_FORWARD)

    def _await_update(self, *names: str) -> None:
        pending = {*self._progress.pending, *names}
        self._progress.pending = [name for name in self.fp8_meta if name in pending]

    @torch.no_grad()
    def _update_scales(self, *names: str) -> None:
        recipe, pending = self.fp8_meta["recipe"], self._progress.pending
        for name in filter(pending.__contains__, names):
            pending.remove(name)
            _scales.end_step(self.fp8_meta[name], _dtype_of(name, recipe.fp8_format), recipe)

    def _reduce_after_backward(self, use: Use) -> None:
        reduce = partial(self._reduce_gradients, use.group)
        torch.autograd.Variable._execution_engine.queue_callback(reduce)

    def _reduce_gradients(self, group: Any) -> None:
        # Each use of the module in a backward pass queues this callback, but only the first one has
        # an effect. A nested backward pass, such as that of a reentrant checkpoint, leaves the
        # reduction to the outer backward pass.
        if self._gradients_measured and torch._C._current_autograd_node() is None:
            self._gradients_measured = False
            with torch.no_grad():
                if self.fp8_meta["recipe"].reduce_amax:
                    _scales.reduce_maximum([self.fp8_meta["scaling_bwd"].amax_history[0]], group)
            self._await_update("scaling_bwd")

    def _begin_step(self, region: Region) -> None:
        if self._step is not region.step:
            self._step = region.step
            self._measures = self._updates = False
            if self.training:
                self._begin_training_step(region.recipe)
        if self._measures:
            region.step.measured[self] = region.group

    def _begin_training_step(self, recipe: DelayedScaling) -> None:
        if self._resets != FP8GlobalStateManager.resets:
            self._resets = FP8GlobalStateManager.resets
            self._progress.steps, self._progress.forced = 0, False
        forced, interval = FP8GlobalStateManager.get_manual_measurement_mode(), recipe.interval
        progress, number = self._progress, self._progress.steps % interval
        self._measures = number == 1 % interval if forced is None else forced
        self._updates = number == 0 or forced is not None or progress.forced
        progress.steps, progress.forced = progress.steps + 1, forced is not None
        if self._updates:
            self._update_scales(*_OF_FORWARD)

    # Otherwise, training could not modify tensors that were created in inference mode.
    @torch.inference_mode(False)
    def _prepare_meta(self, recipe: DelayedScaling, device: torch.device) -> None:
        old, metas, new = self.fp8_meta, {"recipe": recipe}, []
        same_format = "recipe" in old and old["recipe"].fp8_format == recipe.fp8_format
        for name, tensors in self.metas(recipe).items():
            if same_format and name in old:
                meta = _scales.moved(old[name], device)
                meta = _scales.with_history_of(meta, recipe.amax_history_len)
            else:
                meta = _scales.new_meta(len(tensors), recipe.amax_history_len, device)
                new.append(name)
            metas[name] = meta
        self.fp8_meta = metas  # a single assignment, because other threads may use it
        self._await_update(*new)  # only graphs captured from the first step need this

    def _out_dtype(self) -> torch.dtype:
        if not torch.is_autocast_enabled("hpu"):
            return self._params_dtype or torch.bfloat16
        dtype = torch.get_autocast_dtype("hpu")
        if dtype not in _INPUT_TYPES:
            raise TypeError(
                f"{type(self).__name__} cannot compute in FP8 under autocast to {dtype}; use "
                "torch.autocast('hpu', dtype=torch.bfloat16)."
            )
        return dtype

    def get_extra_state(self) -> dict[str, Any]:
        """Return the scales on the CPU, for the ``state_dict``."""
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
        return {"recipe": recipe, "metas": metas, "e4m3_limit": limit} | asdict(self._progress)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load scales from a ``state_dict``; an empty state resets them.

        Scales from another card generation are converted to this card's E4M3 range.
        """
        self.fp8_meta = {}
        self._step, self._gradients_measured = None, False
        self._progress = _Progress()
        if not isinstance(state, dict):
            warnings.warn(
                f"The scales of this {type(self).__name__} are reset because its saved state is a "
                f"{type(state).__name__} from another package.",
                stacklevel=2,
            )
            return
        for name in vars(self._progress).keys() & state.keys():
            setattr(self._progress, name, copy.copy(state[name]))
        if "recipe" in state:
            recipe = state["recipe"]
            formats = Format[recipe["fp8_format"]]
            self.fp8_meta["recipe"] = DelayedScaling(**recipe | {"fp8_format": formats})
            for name, meta in state["metas"].items():
                copied = FP8TensorMeta(**{key: each.clone() for key, each in meta.items()})
                dtype = _dtype_of(name, formats)
                if dtype == torch.float8_e4m3fn and "e4m3_limit" in state:
                    _scales.multiply(copied, _scales.largest(dtype) / state["e4m3_limit"])
                self.fp8_meta[name] = copied

    def save_fp8_meta(self) -> dict[str, Any]:
        """Return a copy of the scales, inverse scales and amax histories.

        Restore the copy with `load_fp8_meta`, for example after capturing a graph with dummy data.
        """
        metas = {name: self.fp8_meta[name] for name in self.fp8_meta if name != "recipe"}
        copies = {name: _scales.copied(meta) for name, meta in metas.items()}
        return copies | {"progress": copy.deepcopy(self._progress)}

    def load_fp8_meta(self, fp8_meta: dict[str, Any]) -> None:
        """Restore the result of `save_fp8_meta` in place, so that captured graphs use it.

        Missing scales are reset.
        """
        for name, meta in self.fp8_meta.items():
            if name != "recipe":
                history, tensors = meta.amax_history.shape
                new = _scales.new_meta(tensors, history, meta.scale.device)
                _scales.restore(meta, fp8_meta.get(name, new))
        self._progress = copy.deepcopy(fp8_meta["progress"])

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        # The state dict of a plain PyTorch layer contains no scales, so they are reset.
        state.setdefault(f"{prefix}_extra_state", {})
        super()._load_from_state_dict(state, prefix, *rest)


def _dtype_of(meta: str, formats: Format) -> torch.dtype:
    return formats.forward if meta == "scaling_fwd" else formats.backward
