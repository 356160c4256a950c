"""Modules whose forward pass is captured into HPU Graphs by the vendor's wrappers."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import notebook, units
from hpu_magic.errors import HPUError, chain
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.tensors import devices_elsewhere
from hpu_magic.runtime.execution.mode import require_lazy
from hpu_magic.runtime.graphs.shapes import ShapeWatch
from hpu_magic.runtime.graphs.transformers_models import (
    GraphedModel,
    is_plain_model,
    make_capturable,
)
from hpu_magic.runtime.present.report import Report, Row

_MOST_GRAPHS = 10


@dataclass
class Wrapped:
    """A wrapped module: its purpose and the shapes of its inputs."""

    purpose: str
    watch: ShapeWatch


_wrapped: weakref.WeakKeyDictionary[Any, Wrapped] = weakref.WeakKeyDictionary()


@dataclass(repr=False)
class WrapReport(Report):
    """A wrapped module."""

    model: Any  #: the module, which is the same object as before wrapping
    purpose: str  #: "inference" or "training"
    wrapper: str  #: the vendor's function that wrapped it
    max_graphs: int | None  #: maximum number of graphs, one per input shape; None for no limit
    first_seconds: float | None = None
    """Duration of the first run with the sample, including the capture."""
    remarks: list[str] = field(default_factory=list)  #: further notes

    def title(self) -> str:
        """Return the headline."""
        kind = type(self.model).__name__
        return f"{kind} wrapped in HPU Graphs for {self.purpose} on {device.label()}"

    def rows(self) -> Sequence[Row]:
        """Return the wrapper, the time of the captures, and the maximum number of graphs."""
        rows = [("by", f"torch.hpu.{self.wrapper}")]
        if self.first_seconds is None:
            rows.append(("captures", "on the first call with each new input shape"))
        else:
            rows.append(("captured", f"for the inputs, in {units.duration(self.first_seconds)}"))
        if self.wrapper != "make_graphed_callables":
            limit = "no limit" if self.max_graphs is None else str(self.max_graphs)
            rows.append(("graph limit", limit))
        return rows

    def notes(self) -> Sequence[str]:
        """Return hints on how to use the module."""
        if self.purpose == "training":
            return self.remarks
        return [
            *self.remarks,
            "The next call with the same input shapes overwrites the outputs: clone them to keep "
            "them.",
        ]


def wrapped(
    model: Any,
    *,
    train: bool | None = None,
    sample: Any = None,
    max_graphs: int | None = None,
) -> WrapReport:
    """Make a module's forward pass (and backward pass, in training) replay HPU Graphs.

    The module is changed in place. ``train`` defaults to ``model.training``. If ``sample`` (a
    tensor or a tuple) is passed, a graph is captured for it immediately; in training, there is then
    a graph only for inputs of this shape. ``max_graphs`` is the maximum number of graphs; it
    defaults to 10 in training and to no limit in inference.

    Raises `HPUError` if the process is not in lazy mode, if ``model`` is not a module, is not on
    the device or has already been wrapped, or if ``max_graphs`` or ``sample`` is invalid.
    """
    _check(model, max_graphs)
    require_lazy("HPU Graphs")
    torch = device.torch_with_hpu()
    samples = _samples(torch, sample)
    train_or_mode = model.training if train is None else train
    wrap_for = _wrap_for_training if train_or_mode else _wrap_for_inference
    report = wrap_for(torch.hpu, model, samples, max_graphs)
    if train is None and model.training:
        name = notebook.name_of(model) or "model"
        report.remarks.append(
            f"The module is in training mode. For inference, create it again, then call "
            f"{name}.eval() or type %hpu_wrap {name} --no-train."
        )
    return report


def explain(error: BaseException) -> str | None:
    """Return advice if a module wrapped for training could not be captured, or None otherwise."""
    training = [model for model, noted in _wrapped.items() if noted.purpose == "training"]
    if not training or not any("graph captur" in str(each) for each in chain(error)):
        return None
    name = notebook.name_of(training[-1]) or "model"
    return (
        f"{name} was wrapped for training, and its forward pass cannot be captured. For inference, "
        f"create it again and type %hpu_wrap {name} --no-train. {name}.eval() runs it without "
        "graphs."
    )


def wrapped_modules() -> list[Wrapped]:
    """Return the wrapped modules that still exist."""
    return list(_wrapped.values())


def _wrap_for_training(
    hpu: Any, model: Any, samples: tuple[Any, ...] | None, max_graphs: int | None
) -> WrapReport:
    remarks = []
    if not model.training:
        remarks.append("The module is in evaluation mode: graphs are used after model.train().")
    if samples is None:
        limit = max_graphs or _MOST_GRAPHS
        hpu.ModuleCacher(max_graphs=limit)(model=model, inplace=True)
        _watch(model, "training", limit)
        return WrapReport(model, "training", "ModuleCacher", limit, remarks=remarks)
    if max_graphs is not None:
        raise HPUError(
            "--max-graphs and --inputs cannot be combined in training, because --inputs captures "
            "one graph: remove one of them."
        )
    start = time.perf_counter()
    hpu.make_graphed_callables(model, samples)
    _wrapped[model] = Wrapped("training", ShapeWatch(type(model).__name__, 1))
    device.synchronize()
    seconds = time.perf_counter() - start
    return WrapReport(model, "training", "make_graphed_callables", 1, seconds, remarks)


def _wrap_for_inference(
    hpu: Any, model: Any, samples: tuple[Any, ...] | None, max_graphs: int | None
) -> WrapReport:
    import torch

    plain = is_plain_model(model)
    generates = plain and model.can_generate()
    if plain:
        make_capturable(model)
    hpu.wrap_in_hpu_graph(model, max_graphs=max_graphs)
    watch = _watch(model, "inference", max_graphs)
    report = WrapReport(model, "inference", "wrap_in_hpu_graph", max_graphs)
    if plain:
        watch.hint = GraphedModel(model, cleared=watch.forget).hint
    if generates:
        report.remarks.append(
            "generate uses a static cache. One graph is captured for each prompt length and each "
            "cache length: pad prompts to a few lengths, and pass the same max_cache_len to each "
            "generate call."
        )
    if model.training:
        report.remarks.append("The module is in training mode: call model.eval() before using it.")
    if samples is not None:
        start = time.perf_counter()
        with torch.no_grad():
            model(*samples)
        device.synchronize()
        report.first_seconds = time.perf_counter() - start
    return report


def _watch(model: Any, purpose: str, limit: int | None) -> ShapeWatch:
    import torch

    def uses_graphs() -> bool:
        return purpose == "inference" or (model.training and torch.is_grad_enabled())

    watch = ShapeWatch(type(model).__name__, limit)
    model.forward = watch.around(model.forward, uses_graphs)
    _wrapped[model] = Wrapped(purpose, watch)
    return watch


def _check(model: Any, max_graphs: int | None) -> None:
    import torch

    if not isinstance(model, torch.nn.Module):
        raise HPUError(
            f"Cannot wrap an object of type {type(model).__name__}: pass a torch.nn.Module."
        )
    elsewhere = devices_elsewhere(model)
    if "meta" in elsewhere:
        raise HPUError(
            "The module has parameters on the meta device, which have no data: load it with "
            "from_pretrained(), or fill it with to_empty(device='hpu') and load_state_dict()."
        )
    if elsewhere:
        raise HPUError(
            f"The module has parameters on {', '.join(elsewhere)}: move it with %hpu_to first."
        )
    if model in _wrapped:
        raise HPUError(
            f"The module is already wrapped for {_wrapped[model].purpose}: create a new module to "
            f"wrap it differently."
        )
    if max_graphs is not None and max_graphs < 1:
        raise HPUError(f"--max-graphs is {max_graphs}: use 1 or more.")


def _samples(torch: Any, sample: Any) -> tuple[Any, ...] | None:
    if sample is None:
        return None
    samples = tuple(sample) if isinstance(sample, list | tuple) else (sample,)
    for value in samples:
        if not isinstance(value, torch.Tensor):
            raise HPUError(
                f"Inputs must be tensors, but one of them is a {type(value).__name__}: pass one "
                f"or more tensors."
            )
        if value.device.type != "hpu":
            raise HPUError(f"The inputs are on {value.device}: move them with %hpu_to first.")
    return samples
