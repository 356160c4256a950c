"""Move models, tensors, containers of tensors and optimizer state between cpu and hpu.

A move either succeeds completely or changes nothing: all objects are checked first, then all copies
are made, and only then are the user's objects changed.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpu_magic import units
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device as devices
from hpu_magic.runtime.device.move_plan import MovePlan, allocated_size
from hpu_magic.runtime.device.pipelines import is_pipeline, models_of, take_inputs_on
from hpu_magic.runtime.device.tensors import tensors_in
from hpu_magic.runtime.present.report import Report, Row

_UNTOUCHED = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 32


@dataclass(repr=False)
class MoveReport(Report):
    """A report on moved objects."""

    device: str
    sizes: dict[str, int]
    """Bytes that each object's moved tensors occupy on the target; 0 if none were moved."""
    seconds: float  # duration of the move, including synchronization
    free: int | None  # free bytes on the device; None if the target is the cpu
    moved: dict[str, Any]  # the objects after the move, by name
    there: frozenset[str] = frozenset()  # names of objects that were already on the target
    doubts: list[str] = field(default_factory=list)  # warnings about optimizers

    def title(self) -> str:
        """Return the headline."""
        target = devices.label() if self.device != "cpu" else "cpu"
        if self.there >= set(self.sizes):
            return f"Nothing was moved: {_listed(self.sizes)} already on {target}"
        total = units.size(sum(self.sizes.values()))
        return f"Moved {total} to {target} in {units.duration(self.seconds)}"

    def rows(self) -> Sequence[Row]:
        """Return the size of each object and the free memory."""
        rows = [
            (name, "already there" if name in self.there else units.size(size))
            for name, size in self.sizes.items()
            if not self.there >= set(self.sizes)
        ]
        if self.free is not None:
            rows.append(("free on the device", units.size(self.free)))
        return rows

    def warnings(self) -> Sequence[str]:
        """Return the warnings about optimizers."""
        return self.doubts


def _listed(names: Iterable[str]) -> str:
    """Return the names followed by "is" or "are", such as ``model and batch are``."""
    *others, last = names
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"


def moved(objects: Sequence[Any], *, device: str, dtype: Any) -> Any:
    """Move objects and return them, as a single object or a tuple; see `hpu_magic.to`."""
    if not objects:
        raise HPUError("Nothing to move: pass a module, a tensor, or a container of tensors.")
    named = {f"Argument {number}": value for number, value in enumerate(objects, 1)}
    results = tuple(move(named, device=device, dtype=dtype).moved.values())
    return results[0] if len(results) == 1 else results


def move(
    objects: Mapping[str, Any],
    *,
    device: str = "hpu",
    dtype: Any = None,
    namespace: Mapping[str, Any] | None = None,
) -> MoveReport:
    """Move named objects and return a report; see `hpu_magic.to`.

    ``namespace`` contains the user's variables, which are searched for optimizers that were not
    moved.
    """
    target = _checked_device(device)
    torch = devices.torch_with_hpu()
    kind = devices.dtype_named(dtype) if dtype is not None else None
    plan = MovePlan(torch, torch.device(target), kind)
    sizes: dict[str, int] = {}
    there = set()
    for name, value in objects.items():
        before, count = plan.size(), len(plan)
        _collect(plan, name, value, torch)
        sizes[name] = plan.size() - before
        if len(plan) == count:
            there.add(name)
    _check_optimizers(plan, objects, torch)
    if target != "cpu":
        _check_fit(plan, sizes, devices.take(target))
    start = time.perf_counter()
    plan.copy()
    moved = {name: _commit(plan, value, torch) for name, value in objects.items()}
    devices.synchronize()
    seconds = time.perf_counter() - start
    free = torch.hpu.mem_get_info()[0] if target != "cpu" else None
    doubts = _doubts(objects, namespace or {}, torch, target)
    return MoveReport(target, sizes, seconds, free, moved, frozenset(there), doubts)


def _checked_device(device: str) -> str:
    name = str(device)
    if re.fullmatch(r"cpu|hpu(:\d{1,4})?", name):
        return name
    raise HPUError(f"Unknown device {name!r}: use hpu or cpu.")


def _collect(plan: MovePlan, path: str, value: Any, torch: Any, depth: int = 0) -> None:
    """Add the tensors in `value` to the plan, or raise an error if `value` cannot be moved."""
    if depth > _DEEPEST:
        raise HPUError(f"{path[:60]}... is nested too deeply or contains itself: flatten it.")
    if isinstance(value, torch.optim.Optimizer):
        for _, _, tensor in _optimizer_state(value, torch):
            plan.add(f"{path}.state", tensor)
        return
    if isinstance(value, torch.Tensor):
        plan.add(path, value)
        return
    if isinstance(value, torch.nn.Module):
        _check_offload(path, value)
        for name, tensor in [*value.named_parameters(), *value.named_buffers()]:
            plan.add(f"{path}.{name}", tensor)
            if tensor.is_leaf and tensor.grad is not None:
                plan.add(f"{path}.{name}.grad", tensor.grad)
        return
    if is_pipeline(value):
        for name, model in models_of(value).items():
            _collect(plan, f"{path}.{name}", model, torch, depth + 1)
        return
    if not isinstance(value, Mapping | list | tuple):
        raise HPUError(
            f"{path} is {_article(value)}, which cannot be moved: pass a module, a tensor, an "
            f"optimizer, or a dict, list or tuple of them."
        )
    if not any(True for _ in tensors_in(value)):
        raise HPUError(f"{path} is {_article(value)} that contains no tensors: nothing to move.")
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in items:
        if isinstance(item, Mapping | list | tuple) and not any(True for _ in tensors_in(item)):
            continue
        if not isinstance(item, _UNTOUCHED):
            _collect(plan, f"{path}[{key!r}]", item, torch, depth + 1)


def _check_offload(path: str, module: Any) -> None:
    """Reject a model whose device map places part of it on the host or on disk."""
    places = set((getattr(module, "hf_device_map", None) or {}).values())
    if len(places) > 1 and places & {"cpu", "disk"}:
        raise HPUError(
            f"{path} is distributed by its device_map, and its parts on the CPU or on disk are "
            f"moved to the card when they are used: use it as is, or load it with device_map='hpu'."
        )


def _article(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _check_fit(plan: MovePlan, sizes: Mapping[str, int], torch: Any) -> None:
    needed = plan.size(allocated_size)
    free, limit = torch.hpu.mem_get_info()
    if needed > free:
        parts = ", ".join(f"{name} {units.size(size)}" for name, size in sizes.items() if size)
        if needed > limit:
            raise HPUError(
                f"{parts} cannot fit: {units.size(needed)} are needed, but {devices.label()} has "
                f"only {units.size(limit)}; use dtype bf16, or distribute it across several cards."
            )
        raise HPUError(
            f"{parts} cannot fit: {units.size(needed)} are needed, but only {units.size(free)} of "
            f"{units.size(limit)} are free on {devices.label()}; delete unused objects, or use "
            f"dtype bf16."
        )


def _commit(plan: MovePlan, value: Any, torch: Any) -> Any:
    """Return `value` with its tensors replaced by the copies, without allocating device memory."""
    if isinstance(value, torch.optim.Optimizer):
        for state, key, tensor in _optimizer_state(value, torch):
            state[key] = plan.moved(tensor)
        return value
    if isinstance(value, torch.nn.Parameter):
        gradient = value.grad
        value.data = plan.moved(value).detach()
        if gradient is not None:
            value.grad = plan.moved(gradient)
        return value
    if isinstance(value, torch.Tensor):
        return plan.moved(value)
    if isinstance(value, torch.nn.Module):
        # nn.Module._apply replaces the parameters' data in place, so the Parameter objects stay the
        # same.
        value._apply(plan.moved)
        # No tensors are left to move, but this call updates the ``device`` of a LightningModule.
        return value.to(plan.device)
    if is_pipeline(value):
        for model in models_of(value).values():
            _commit(plan, model, torch)
        take_inputs_on(value, plan.device)
        return value
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return value.to(plan.device)
    if isinstance(value, Mapping):
        new: Any = copy.copy(value)
        for key, item in value.items():
            new[key] = _commit(plan, item, torch)
        return new
    if isinstance(value, list):
        new_list = copy.copy(value)
        new_list[:] = [_commit(plan, item, torch) for item in value]
        return new_list
    if isinstance(value, tuple):
        items = [_commit(plan, item, torch) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _optimizer_state(optimizer: Any, torch: Any) -> list[tuple[dict[Any, Any], Any, Any]]:
    """Return (state, key, tensor) for each state tensor that must be on its parameter's device.

    Step counters stay on the cpu unless the optimizer is fused or capturable, as in
    ``Optimizer.load_state_dict``.
    """
    states = []
    for group in optimizer.param_groups:
        on_device = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and (key != "step" or on_device):
                    states.append((state, key, value))
    return states


def _check_optimizers(plan: MovePlan, objects: Mapping[str, Any], torch: Any) -> None:
    for name, value in objects.items():
        if not isinstance(value, torch.optim.Optimizer):
            continue
        for group in value.param_groups:
            for parameter in group["params"]:
                if parameter not in plan and parameter.device.type != plan.device.type:
                    raise HPUError(
                        f"{name} updates parameters on {parameter.device}, and its state must be "
                        f"on the same device: also move the model that owns these parameters."
                    )


def _doubts(
    objects: Mapping[str, Any], namespace: Mapping[str, Any], torch: Any, target: str
) -> list[str]:
    """Return warnings about optimizers that do not match the moved models."""
    modules = {name: obj for name, obj in objects.items() if isinstance(obj, torch.nn.Module)}
    own = {id(parameter) for module in modules.values() for parameter in module.parameters()}
    doubts = []
    optimizers = {
        name: obj
        for name, obj in {**namespace, **objects}.items()
        if isinstance(obj, torch.optim.Optimizer) and not name.startswith("_")
    }
    names = " and ".join(modules)
    for name, optimizer in optimizers.items() if modules else ():
        built_on = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        foreign = [parameter for parameter in built_on if id(parameter) not in own]
        away = [each for each in foreign if each.device.type != torch.device(target).type]
        if foreign and (away or name in objects):
            doubts.append(
                f"{name} updates parameters that are not in {names}"
                f"{'' if len(foreign) == len(built_on) else f' ({len(foreign)} of them)'}: "
                f"recreate it with the parameters of the moved model to train that model."
            )
        elif not foreign and any(
            state.device.type != torch.device(target).type
            for _, _, state in _optimizer_state(optimizer, torch)
        ):
            doubts.append(f"The state of {name} is on a different device: type %hpu_to {name}.")
    return doubts
