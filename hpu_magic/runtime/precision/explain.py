"""The type that each operation of a model runs in under autocast, read off a real run, and why."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any

from hpu_magic.errors import RefusedError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision import operators
from hpu_magic.runtime.precision.autocast import autocast
from hpu_magic.runtime.present.table import Table

# CUDA's autocast computes these in float32, by PyTorch's documentation.
_FP32_UNDER_CUDA = {
    *("cumprod", "cumsum", "group_norm", "layer_norm", "log_softmax"),
    *("norm", "prod", "softmax", "sum"),
}
# They fill, move or describe memory and compute nothing.
_MOVES = {
    *("as_strided_", "detach_", "resize_", "squeeze_", "t_", "transpose_", "unsqueeze_"),
    *("clone", "copy_", "fill_", "zero_", "_to_copy"),
    *("empty_like", "ones_like", "zeros_like"),
}


@dataclass(frozen=True)
class Operation:
    """An operation that a module calls.

    Attributes
    ----------
    module : str
        The module's path below the model and its class, such as "encoder.0 (Linear)".
    name : str
        The operator, such as "linear".
    dtype : str
        The type that it computes in.
    reason : str
        Why in this one.
    """

    module: str
    name: str
    dtype: str
    reason: str


@dataclass(repr=False)
class AutocastExplanation(Table):
    """Which type each operation of a model runs in under autocast, and why.

    Attributes
    ----------
    model : str
        The model's class.
    dtype : str
        The lower precision.
    operations : Counter
        `Operation` to how often it is called, in the order of the first calls.
    conversions : int
        Tensors that autocast converted to another type.
    lists : OperatorLists
        The operator lists in force.
    unseen : set of str
        Modules that ran in other threads, whose operations are not among these.
    """

    model: str
    dtype: str
    lists: operators.OperatorLists
    operations: Counter[Operation] = field(default_factory=Counter)
    conversions: int = 0
    unseen: set[str] = field(default_factory=set)

    def title(self) -> str:
        """Return the headline."""
        return f"{self.model} under autocast {self.dtype} on {device.label()}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("module", "operation", "type", "why")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the operations; modules that differ in their number alone share a line."""
        shown = []
        last = ""
        for operation, count in _merged(self.operations).items():
            times = f" x{count}" if count > 1 else ""
            module = "" if operation.module == last else operation.module
            last = operation.module
            shown.append((module, operation.name + times, operation.dtype, operation.reason))
        return shown

    def notes(self) -> Sequence[str]:
        """Count the conversions, and tell what CUDA's autocast does otherwise."""
        said = [f"Conversions in one forward pass: {self.conversions}."]
        if self.lists != operators.OperatorLists():
            said.append(f"Operator lists: {self.lists.describe()}.")
        lowered = {one.name for one in self.operations if one.dtype == self.dtype}
        surprises = sorted(lowered & _FP32_UNDER_CUDA)
        if surprises:
            one = len(surprises) == 1
            names = " and ".join(filter(None, (", ".join(surprises[:-1]), surprises[-1])))
            said.append(
                f"{names} run{'s' if one else ''} in {self.dtype} here; CUDA's autocast keeps "
                f"{'it' if one else 'them'} in float32."
            )
        if self.unseen:
            said.append(
                f"Not seen, as they ran in other threads: {', '.join(sorted(self.unseen))}. "
                "Autocast holds for the thread that enters it alone."
            )
        return said


def explain_autocast(
    model: Any,
    /,
    *sample: Any,
    dtype: Any = "bf16",
    sample_keywords: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> AutocastExplanation:
    """Show, for each module of a model, the type that its operations run in, and why.

    The model runs once under autocast, without gradients; its buffers and the random numbers
    are afterwards as they were.

    Parameters
    ----------
    model : torch.nn.Module
        On the device.
    *sample, **keywords
        What the model is called with.
    dtype : str or torch.dtype
        "bf16" or "fp16".
    sample_keywords : mapping, optional
        Further keywords of the model's, for those that this function takes itself: `dtype`.

    Raises
    ------
    RefusedError
        `model` is no module or not on the device, the type is none of autocast's, a profile is
        being recorded, or no operation ran on the device.
    """
    context = autocast(dtype)
    torch = device.torch_with_hpu()
    if not isinstance(model, torch.nn.Module):
        raise RefusedError(f"{type(model).__name__} is no module: give a torch.nn.Module.")
    elsewhere = {str(one.device) for one in model.parameters() if one.device.type != "hpu"}
    if elsewhere:
        raise RefusedError(
            f"The model is on {', '.join(sorted(elsewhere))}: move it to the device first, "
            "with %hpu_to or hpu_magic.to."
        )
    if torch.autograd._profiler_enabled():
        raise RefusedError(
            "A profile is being recorded, and this records one of its own: explain before or after."
        )
    lower = str(context.dtype).removeprefix("torch.")
    found = AutocastExplanation(type(model).__name__, lower, operators.in_force())
    given = {**keywords, **(sample_keywords or {})}
    labels = _labels(model)
    tree, unseen = _profiled(torch, model, context, sample, given)
    found.unseen.update(labels[place] for place in unseen)
    _Reader(torch, found, labels).read(tree, "")
    if not found.operations and not found.unseen:
        raise RefusedError(
            "No operation of the model ran on floating-point tensors of the device: move the "
            "sample there too, with %hpu_to or hpu_magic.to."
        )
    return found


_SCOPE = "hpu_magic.module."


def _labels(model: Any) -> list[str]:
    return [
        f"{path} ({type(module).__name__})" if path else type(module).__name__
        for path, module in model.named_modules()
    ]


def _profiled(
    torch: Any, model: Any, context: autocast, sample: Any, keywords: dict[str, Any]
) -> tuple[Any, set[int]]:
    """Run the model and return the tree of its calls, in which autocast's own casts appear.

    Beside it come the places of the modules that other threads have run.
    """
    from torch.autograd import profiler

    with ExitStack() as stack:
        stack.enter_context(_restored(torch, model))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        profile = stack.enter_context(profiler.profile(record_shapes=True))
        unseen = stack.enter_context(_scopes(torch, model, profiler.record_function))
        stack.enter_context(context)
        model(*sample, **keywords)
    return profile.kineto_results.experimental_event_tree(), unseen


@contextmanager
def _restored(torch: Any, model: Any) -> Iterator[None]:
    buffers = [
        (module._buffers, name, buffer, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    random, random_there = torch.get_rng_state(), torch.hpu.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(random)
        torch.hpu.set_rng_state(random_there)
        for owner, name, buffer, before in buffers:
            owner[name] = buffer
            # What is as it was may be what cannot be written, such as an expanded tensor.
            if not torch.equal(buffer, before):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(before)


@contextmanager
def _scopes(torch: Any, model: Any, record_function: Any) -> Iterator[set[int]]:
    """Mark in the profile which module a call belongs to, by its place in the model.

    Yield a set that gets the places of modules that run in other threads only, which the profile
    does not record. Whoever runs the whole model elsewhere meanwhile adds none to it.
    """
    places = {module: place for place, (_, module) in enumerate(model.named_modules())}
    thread = threading.get_ident()
    entered: list[Any] = []
    here: set[int] = set()
    elsewhere: set[int] = set()

    def enter(module: Any, _: Any) -> None:
        if module not in places:
            return
        if threading.get_ident() != thread:
            elsewhere.add(places[module])
        else:
            here.add(places[module])
            entered.append(record_function(f"{_SCOPE}{places[module]}"))
            entered[-1].__enter__()

    def leave(module: Any, *_: Any) -> None:
        if module in places and threading.get_ident() == thread:
            entered.pop().__exit__(None, None, None)

    hooks = torch.nn.modules.module
    with ExitStack() as stack:
        stack.callback(hooks.register_module_forward_pre_hook(enter).remove)
        stack.callback(hooks.register_module_forward_hook(leave, always_call=True).remove)
        unseen: set[int] = set()
        yield unseen
        unseen |= elsewhere - here


class _Reader:
    """Reads the operations from a profile's tree of calls.

    An operator that autocast knows appears twice, one call within the other: as it was called,
    and once more as autocast calls it after the casts.
    """

    def __init__(self, torch: Any, found: AutocastExplanation, labels: Sequence[str]) -> None:
        self._torch = torch
        self._found = found
        self._labels = labels

    def read(self, calls: Iterable[Any], module: str) -> None:
        """Add the operations of `calls`, made by a module."""
        for call in calls:
            if call.name.startswith(_SCOPE):
                self.read(call.children, self._labels[int(call.name.removeprefix(_SCOPE))])
            elif "::" not in call.name:
                self.read(call.children, module)
            elif self._autocast_within(call) is not None or not self._is_composed(call):
                self._add(call, module)
            else:
                self.read(call.children, module)

    def _autocast_within(self, call: Any) -> Any:
        """Return the call that autocast makes after its casts; None where it made none."""
        listed = operators.list_of(_plain(call.name), self._found.lists)
        if listed is None:
            return None
        # Others call themselves too: in lazy mode on tensors without memory, which tells the
        # shapes, and under vmap in the type that they have.
        wanted = {"lower": self._found.dtype, "fp32": "float32"}.get(listed)
        for one in call.children:
            types = self._types(one) if one.name == call.name else []
            if types and wanted in (None, _name(types[0])):
                return one
        return None

    def _is_composed(self, call: Any) -> bool:
        return any(
            self._autocast_within(one) is not None or self._is_composed(one)
            for one in call.children
        )

    def _add(self, call: Any, module: str) -> None:
        name = _plain(call.name)
        given = self._types(call)
        if not given or name in _MOVES or _computes_nothing(call.name):
            return
        inner = self._autocast_within(call)
        computed = given if inner is None else self._types(inner)
        if inner is not None:
            self._found.conversions += sum(
                one.name == "aten::to" and bool(one.children) for one in call.children
            )
        in_place = name.endswith("_") and not name.endswith("__")
        dtype = computed[0] if in_place or inner is not None else self._widest(computed)
        reason = self._reason(name, given, computed, in_place, inner is not None)
        self._found.operations[Operation(module, name, _name(dtype), reason)] += 1

    def _reason(
        self, name: str, given: Sequence[Any], computed: Sequence[Any], in_place: bool, cast: bool
    ) -> str:
        listed = operators.list_of(name, self._found.lists)
        if in_place:
            return "in place: the type of what it changes"
        if listed and not cast:
            wide = given[0] == self._torch.float64
            return "autocast leaves float64 alone" if wide else "autocast is off around it"
        if listed == "promote":
            return f"promote list: {_widest_of(given)}"
        if listed:
            kind = "lower-precision" if listed == "lower" else "fp32"
            rest = {one for one in computed[1:] if one != computed[0]}
            kept = f"; parameters stay {_listed(rest)}" if rest else ""
            return f"{kind} list{kept}"
        return f"in no list: {_widest_of(given)}"

    def _types(self, call: Any) -> list[Any]:
        """Return the types of the floating-point tensors of the device that a call gets."""
        return [
            one.dtype
            for one in _flat(getattr(call.extra_fields, "inputs", ()))
            if hasattr(one, "dtype") and one.device.type == "hpu" and one.dtype.is_floating_point
        ]

    def _widest(self, types: Sequence[Any]) -> Any:
        return reduce(self._torch.promote_types, types)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(types: Iterable[Any]) -> str:
    return " and ".join(sorted({_name(one) for one in types}))


def _widest_of(types: Sequence[Any]) -> str:
    if len(set(types)) > 1:
        return f"the widest of {_listed(types)}"
    return f"the type of its input{'s' if len(types) > 1 else ''}"


def _plain(operator: str) -> str:
    """Return an operator as the lists name it; those of other libraries keep their prefix."""
    return operator.removeprefix("aten::").replace("::", ".")


@cache
def _computes_nothing(operator: str) -> bool:
    """Tell whether an operator gives no tensor, or may give its argument or a view of it."""
    import torch

    namespace, _, name = operator.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    if packet is None:
        return False
    returned = [
        result
        for overload in packet.overloads()
        for result in getattr(packet, overload)._schema.returns
    ]
    aliases = [each.alias_info for each in returned if each.alias_info is not None]
    return any(not alias.is_write for alias in aliases) or not any(
        "Tensor" in str(each.type) for each in returned
    )


_NUMBER = re.compile(r"\b(?:0|[1-9]\d*)\b")


def _merged(operations: Counter[Operation]) -> dict[Operation, int]:
    """Join modules with the same operations whose paths differ in numbers alone.

    ``layers.0`` to ``layers.5`` become ``layers.0-5``, if these are all that there are.
    """
    by_module: dict[str, list[tuple[Operation, int]]] = {}
    for operation, count in operations.items():
        by_module.setdefault(operation.module, []).append((operation, count))
    alike: dict[Any, list[str]] = {}
    for module, lines in by_module.items():
        does = tuple((one.name, one.dtype, one.reason, count) for one, count in lines)
        alike.setdefault((_NUMBER.sub("#", module), does), []).append(module)
    merged: dict[Operation, int] = {}
    shown = {module: name for names in map(_joined, alike.values()) for module, name in names}
    for module, lines in by_module.items():
        if module in shown:
            merged.update((replace(one, module=shown[module]), count) for one, count in lines)
    return merged


def _joined(modules: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Return modules with what they are shown as; if they are all of a range, the first only."""
    numbers = {tuple(int(one) for one in _NUMBER.findall(module)) for module in modules}
    spans = [range(min(column), max(column) + 1) for column in zip(*numbers, strict=True)]
    if math.prod(map(len, spans)) != len(modules):
        return [(module, module) for module in modules]
    texts = iter(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in spans)
    return [(modules[0], _NUMBER.sub(lambda _: next(texts), modules[0]))]
