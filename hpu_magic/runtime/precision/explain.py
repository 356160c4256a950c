"""Explain the dtype of each operation in a model under autocast, based on an actual run."""

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

from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.tensors import devices_elsewhere
from hpu_magic.runtime.precision import operators
from hpu_magic.runtime.precision.autocast import Autocast, flat
from hpu_magic.runtime.present.table import Table

# According to PyTorch's documentation, autocast computes these operators in float32 on CUDA.
_FP32_UNDER_CUDA = {
    *("cumprod", "cumsum", "group_norm", "layer_norm", "log_softmax"),
    *("norm", "prod", "softmax", "sum"),
}
# These operators fill, move or describe memory, but do not compute anything.
_MOVES = {
    *("as_strided_", "detach_", "resize_", "squeeze_", "t_", "transpose_", "unsqueeze_"),
    *("clone", "copy_", "fill_", "zero_", "_to_copy"),
    *("empty_like", "ones_like", "zeros_like"),
}


@dataclass(frozen=True)
class AutocastOperation:
    """An operation called by a module."""

    module: str  # the module's path in the model and its class, such as "encoder.0 (Linear)"
    name: str  # the operator, such as "linear"
    dtype: str  # the dtype in which the operation is computed
    reason: str  # why it has this dtype


@dataclass(repr=False)
class AutocastExplanation(Table):
    """The dtype of each operation in a model under autocast, with the reason."""

    model: str  #: the model's class
    dtype: str  #: the lower-precision dtype
    lists: operators.OperatorLists  #: the loaded operator lists
    operations: Counter[AutocastOperation] = field(default_factory=Counter)
    """The number of calls for each `AutocastOperation`, in the order of the first calls."""
    conversions: int = 0  #: number of tensors that autocast converted to another dtype
    unseen: set[str] = field(default_factory=set)
    """Modules that ran in other threads, and whose operations are therefore missing."""

    def title(self) -> str:
        """Return the headline."""
        return f"{self.model} under autocast {self.dtype} on {device.label()}"

    def columns(self) -> Sequence[str]:
        """Return the names of the columns."""
        return ("module", "operation", "type", "why")

    def lines(self) -> Sequence[Sequence[str]]:
        """Return the operations; identical modules in a numbered range share lines."""
        lines = []
        last = ""
        for operation, count in _merged(self.operations).items():
            times = f" x{count}" if count > 1 else ""
            module = "" if operation.module == last else operation.module
            last = operation.module
            lines.append((module, operation.name + times, operation.dtype, operation.reason))
        return lines

    def notes(self) -> Sequence[str]:
        """Return the number of conversions, the lists, and differences from autocast on CUDA."""
        notes = [f"Conversions in one forward pass: {self.conversions}."]
        if self.lists != operators.OperatorLists():
            notes.append(f"Operator lists: {self.lists.describe()}.")
        lowered = {operation.name for operation in self.operations if operation.dtype == self.dtype}
        differing = sorted(lowered & _FP32_UNDER_CUDA)
        if differing:
            single = len(differing) == 1
            names = " and ".join(filter(None, (", ".join(differing[:-1]), differing[-1])))
            notes.append(
                f"{names} run{'s' if single else ''} in {self.dtype} on the card; CUDA's autocast "
                f"keeps {'it' if single else 'them'} in float32."
            )
        if self.unseen:
            notes.append(
                f"These modules ran in other threads and are missing: "
                f"{', '.join(sorted(self.unseen))}. Autocast affects only the thread that enters "
                "it."
            )
        return notes


def explained(
    model: Any, arguments: Sequence[Any], named: Mapping[str, Any], dtype: Any
) -> AutocastExplanation:
    """Return the dtype of each operation in a model; see `hpu_magic.explain_autocast`."""
    context = Autocast(dtype)
    torch = device.torch_with_hpu()
    if not isinstance(model, torch.nn.Module):
        raise HPUError(
            f"Cannot explain an object of type {type(model).__name__}: pass a torch.nn.Module."
        )
    elsewhere = devices_elsewhere(model)
    if elsewhere:
        raise HPUError(
            f"The model is on {', '.join(elsewhere)}: move it to the device first, "
            "with %hpu_to or hpu_magic.to."
        )
    if torch.autograd._profiler_enabled():
        raise HPUError(
            "A profiler is already active, but an explanation needs its own profile: explain the "
            "model before or after profiling."
        )
    lower = str(context.dtype).removeprefix("torch.")
    explanation = AutocastExplanation(type(model).__name__, lower, operators.in_force())
    labels = _labels(model)
    tree, unseen = _profiled(torch, model, context, arguments, dict(named))
    explanation.unseen.update(labels[place] for place in unseen)
    _Reader(torch, explanation, labels).read(tree, "")
    if not explanation.operations and not explanation.unseen:
        raise HPUError(
            "The model ran no operations on floating-point device tensors: move the inputs to the "
            "device as well, with %hpu_to or hpu_magic.to."
        )
    return explanation


_SCOPE = "hpu_magic.module."


def _labels(model: Any) -> list[str]:
    return [
        f"{path} ({type(module).__name__})" if path else type(module).__name__
        for path, module in model.named_modules()
    ]


def _profiled(
    torch: Any, model: Any, context: Autocast, sample: Any, keywords: dict[str, Any]
) -> tuple[Any, set[int]]:
    """Run the model, and return its call tree and the modules that ran in other threads.

    The tree includes the casts made by autocast. Modules are identified by their index in
    ``model.named_modules()``.
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
            # An unchanged buffer may not be writable, for example an expanded tensor.
            if not torch.equal(buffer, before):
                with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                    buffer.copy_(before)


@contextmanager
def _scopes(torch: Any, model: Any, record_function: Any) -> Iterator[set[int]]:
    """Mark the calls of each module in the profile with the module's index in the model.

    Yields a set. When the context ends, the set contains the modules that ran only in other
    threads, which the profile does not record.
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
    """Reads the operations from a profile's call tree.

    An operator in autocast's lists appears as two nested calls: the call made by the program, and
    inside it the call that autocast makes after the casts.
    """

    def __init__(self, torch: Any, explanation: AutocastExplanation, labels: Sequence[str]) -> None:
        self._torch = torch
        self._explanation = explanation
        self._labels = labels

    def read(self, calls: Iterable[Any], module: str) -> None:
        """Add the operations that run when a module is called."""
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
        """Return the call that autocast makes after its casts, or None if there is none."""
        listed = operators.list_of(_plain(call.name), self._explanation.lists)
        if listed is None:
            return None
        # Operators may also call themselves for other reasons: in lazy mode to infer shapes (on
        # tensors without memory), and under vmap (with the same dtype).
        dtype = {"lower": self._explanation.dtype, "fp32": "float32"}.get(listed)
        for child in call.children:
            types = self._types(child) if child.name == call.name else []
            if types and dtype in (None, _name(types[0])):
                return child
        return None

    def _is_composed(self, call: Any) -> bool:
        return any(
            self._autocast_within(child) is not None or self._is_composed(child)
            for child in call.children
        )

    def _add(self, call: Any, module: str) -> None:
        name = _plain(call.name)
        inputs = self._types(call)
        if not inputs or name in _MOVES or _computes_nothing(call.name):
            return
        inner = self._autocast_within(call)
        computed = inputs if inner is None else self._types(inner)
        if inner is not None:
            self._explanation.conversions += sum(
                child.name == "aten::to" and bool(child.children) for child in call.children
            )
        in_place = name.endswith("_") and not name.endswith("__")
        dtype = computed[0] if in_place or inner is not None else self._widest(computed)
        reason = self._reason(name, inputs, computed, in_place, inner is not None)
        self._explanation.operations[AutocastOperation(module, name, _name(dtype), reason)] += 1

    def _reason(
        self, name: str, inputs: Sequence[Any], computed: Sequence[Any], in_place: bool, cast: bool
    ) -> str:
        listed = operators.list_of(name, self._explanation.lists)
        if in_place:
            return "in place: the dtype of the output"
        if listed and not cast:
            wide = inputs[0] == self._torch.float64
            return "autocast does not cast float64" if wide else "autocast is disabled around it"
        if listed == "promote":
            return f"promote list: {_widest_of(inputs)}"
        if listed:
            kind = "lower-precision" if listed == "lower" else "fp32"
            rest = {dtype for dtype in computed[1:] if dtype != computed[0]}
            kept = f"; parameters stay {_listed(rest)}" if rest else ""
            return f"{kind} list{kept}"
        return f"not in a list: {_widest_of(inputs)}"

    def _types(self, call: Any) -> list[Any]:
        """Return the dtypes of the floating-point device tensors that are passed to a call."""
        return [
            value.dtype
            for value in flat(getattr(call.extra_fields, "inputs", ()))
            if hasattr(value, "dtype")
            and value.device.type == "hpu"
            and value.dtype.is_floating_point
        ]

    def _widest(self, types: Sequence[Any]) -> Any:
        return reduce(self._torch.promote_types, types)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(types: Iterable[Any]) -> str:
    return " and ".join(sorted({_name(dtype) for dtype in types}))


def _widest_of(types: Sequence[Any]) -> str:
    if len(set(types)) > 1:
        return f"the widest of {_listed(types)}"
    return f"the type of its input{'s' if len(types) > 1 else ''}"


def _plain(operator: str) -> str:
    """Return an operator's name as it appears in the lists; other libraries' prefixes are kept."""
    return operator.removeprefix("aten::").replace("::", ".")


@cache
def _computes_nothing(operator: str) -> bool:
    """Return whether an operator returns no tensor, or may return its argument or a view of it."""
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


def _merged(operations: Counter[AutocastOperation]) -> dict[AutocastOperation, int]:
    """Merge modules that have the same operations and whose paths differ only in their numbers.

    For example, ``layers.0`` to ``layers.5`` become ``layers.0-5``, provided that the range is
    complete.
    """
    by_module: dict[str, list[tuple[AutocastOperation, int]]] = {}
    for operation, count in operations.items():
        by_module.setdefault(operation.module, []).append((operation, count))
    alike: dict[Any, list[str]] = {}
    for module, lines in by_module.items():
        same = tuple((each.name, each.dtype, each.reason, count) for each, count in lines)
        alike.setdefault((_NUMBER.sub("#", module), same), []).append(module)
    merged: dict[AutocastOperation, int] = {}
    shown = {module: name for names in map(_joined, alike.values()) for module, name in names}
    for module, lines in by_module.items():
        if module in shown:
            merged.update((replace(each, module=shown[module]), count) for each, count in lines)
    return merged


def _joined(modules: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Return modules with labels, or one module with a joint label for a complete range."""
    numbers = {tuple(map(int, _NUMBER.findall(module))) for module in modules}
    spans = [range(min(column), max(column) + 1) for column in zip(*numbers, strict=True)]
    if math.prod(map(len, spans)) != len(modules):
        return [(module, module) for module in modules]
    texts = iter(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    return [(modules[0], _NUMBER.sub(lambda _: next(texts), modules[0]))]
