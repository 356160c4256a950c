"""A fake card whose tensors use no memory and whose operators only infer shapes."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch._dynamo.eval_frame
import torch.autograd.graph
import torch.backends.mha
import torch.backends.mkldnn
import torch.utils._stats
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils import _pytree as pytree

from hpu_magic.estimates.tracing import host_random, known_numbers
from hpu_magic.runtime.device import device

Listener = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
"""A function that is called with each operator, its arguments and its result."""

_WHICH_DEVICE = torch.ops.prim.device.default
_INDEX = torch.ops.aten.index.Tensor
_ADD, _ADD_INTO = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor
_CTC = torch.ops.aten._ctc_loss
_ALIAS = torch.ops.aten.alias.default
# The oldest supported release of PyTorch does not have this operator.
_GROUPED: Any = getattr(getattr(torch.ops.aten, "_grouped_mm", None), "default", None)
_PRODUCTS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("mm", "addmm", "bmm", "baddbmm", "convolution")
)
_LAYERS = frozenset(
    inspect.getfile(each) for each in (nn.Linear, nn.RNNBase, nn.functional.softmax)
)
_AUTOGRAD = inspect.getfile(torch.autograd.graph)
_BETWEEN = frozenset(
    inspect.getfile(each)
    for each in (
        sys.modules[__name__],
        torch._compile,
        torch._dynamo.eval_frame,
        torch.utils._stats,
    )
)
"""Files whose functions may appear in the call stack between an operator's caller and `FakeCard`.
"""
_META = torch.device("meta")
one_at_a_time = threading.RLock()
"""Lock that a thread holds while it traces, because the model then has fake tensors."""


def device_type() -> str:
    """Return ``"hpu"``, or ``"cpu"`` if PyTorch was initialized without a card.

    Traces on these two devices differ only in device-specific operators.
    """
    return "hpu" if device.bridge_loaded() else "cpu"


class FakeCard(FakeTensorMode):
    """Dispatch mode in which tensors on the card are fake, so no card is acquired."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.listener: Listener | None = None
        self.sums_gradients = False
        """Whether the current operator is the addition of two gradients by autograd."""
        self._within = False  # whether an operator is running; it may call other operators

    @property
    def avoid_device_init(self) -> bool:
        """Whether PyTorch should avoid initializing the device for constants."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fake tensors, and notify the listener."""
        if func is _WHICH_DEVICE:  # true for most calls
            fake = args[0]
            return _META if fake.fake_mode.in_kernel_invocation else fake.fake_device
        self.sums_gradients = False
        if func is _ADD and not self._within and _owns_first(args):
            if _adds_bias(args):
                self.__torch_dispatch__(_ADD_INTO, types, args, kwargs)
                return super().__torch_dispatch__(_ALIAS, types, args[:1], {})
            self.sums_gradients = _sums_gradients(args)
        kwargs = kwargs or {}
        if self._within:
            return super().__torch_dispatch__(func, types, args, kwargs)
        self._within = True
        try:
            result = self._result(func, types, args, kwargs)
        finally:
            self._within = False
        if result is not NotImplemented and self.listener is not None:
            self.listener(func, args, kwargs, result)
        return result

    def _result(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _PRODUCTS:
            _check_types(args)
        if func is _GROUPED and args[0].dtype is not torch.bfloat16:
            return self._grouped_product(types, args, kwargs)
        try:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if func is _INDEX and (indices := self._without_masks(args[1])) is not None:
                return super().__torch_dispatch__(func, types, (args[0], indices), kwargs)
            if func.overloadpacket is _CTC and (longest := _longest(args[3])) is not None:
                return self._ctc(args[0], longest)
            computed = known_numbers.compute(func, args, kwargs)
            if computed is None:
                raise
            return pytree.tree_map_only(torch.Tensor, self._fake, computed)
        known_numbers.follow(func, args, kwargs, result)
        return result

    def _grouped_product(self, types: Any, args: Any, kwargs: Any) -> Any:
        """Run a grouped matmul in bfloat16, as PyTorch cannot infer its shape for other dtypes."""
        factors = tuple(each.to(torch.bfloat16) for each in args[:2])
        result: Any = super().__torch_dispatch__(_GROUPED, types, (*factors, *args[2:]), kwargs)
        return result.to(args[0].dtype)

    def _ctc(self, logits: torch.Tensor, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return fake CTC losses of the sequences, and the table used to compute the gradient."""
        steps, batch = (*logits.shape[:2], 1)[:2]
        with self:
            return logits.new_empty(batch), logits.new_empty(batch, steps, 2 * longest + 1)

    def _without_masks(self, indices: Any) -> list[Any] | None:
        """Replace masks in indices with integers; return None if a mask's values are unknown.

        The number of elements that a mask selects determines the shape of the result.
        """
        found: list[Any] = []
        for each in indices:
            if each is None or each.dtype not in (torch.bool, torch.uint8):
                found.append(each)
                continue
            numbers = known_numbers.numbers_of(each)
            if numbers is None:
                return None
            found += map(self._fake, numbers.nonzero().unbind(1))
        return found

    def _fake(self, numbers: torch.Tensor) -> torch.Tensor:
        with self:
            fake = torch.empty_strided(
                numbers.shape, numbers.stride(), dtype=numbers.dtype, device=device_type()
            )
        known_numbers.set_numbers(fake, numbers)
        return fake


def _longest(lengths: Any) -> int | None:
    """Return the maximum of a list of lengths, or of a tensor if its values are known."""
    if isinstance(lengths, torch.Tensor):
        numbers = known_numbers.numbers_of(lengths)
        lengths = None if numbers is None else numbers.flatten().tolist()
    return None if lengths is None else max(lengths, default=0)


def _check_types(factors: Any) -> None:
    """Raise an error if a matmul mixes integers and floats, as all devices except meta do."""
    kinds = {each.dtype for each in factors if isinstance(each, torch.Tensor)}
    torch._check(
        len({each.is_floating_point or each.is_complex for each in kinds}) < 2,
        lambda: f"a matmul cannot combine {' and '.join(sorted(map(str, kinds)))}",
    )


def _owns_first(args: Any) -> bool:
    """Return whether no other object refers to the storage of the first operand."""
    if len(args) != 2 or not all(isinstance(each, FakeTensor) for each in args):
        return False
    # The storage has two references: one from the tensor, and one from this Python object.
    alone: bool = torch._C._storage_Use_Count(args[0].untyped_storage()._cdata) <= 2
    return alone and args[0].dtype == args[1].dtype


def _adds_bias(args: Any) -> bool:
    """Return whether a layer is adding its bias; without this mode, it does so in place."""
    product, bias = args
    return bool(
        bias.dim() == 1 < product.dim() - 1
        and product.shape[-1:] == bias.shape
        and _caller() in _LAYERS
    )


def _sums_gradients(args: Any) -> bool:
    """Return whether autograd is adding gradients; without this mode, it does so in place."""
    if torch._C._current_autograd_node() is None or torch.is_grad_enabled():
        return False
    first, second = args
    return first.shape == second.shape and _is_dense(first) and _caller() == _AUTOGRAD


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements are contiguous for some order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _caller() -> str:
    """Return the file of the Python function that called the operator, directly or from C++."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    return _AUTOGRAD if frame is None else frame.f_code.co_filename


@contextmanager
def fake_card() -> Iterator[FakeCard]:
    """Activate a fake card; only one thread can trace at a time."""
    with (
        one_at_a_time,
        _without_tracebacks(),
        host_random.same_each_time(),
        _transformers_reads_known_numbers(),
        _without_cpu_operators(),
        torch.compiler.set_stance("force_eager"),  # compiled code consists of the same operators
        FakeCard() as card,
    ):
        yield card


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Prevent PyTorch from logging errors of fake tensors, because they are also raised."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _without_cpu_operators() -> Iterator[None]:
    """Make PyTorch use the operators that it would use on a card, even with fake CPU tensors.

    On the CPU, PyTorch has fused operators for LSTMs and transformer layers.
    """
    if device_type() != "cpu":
        yield
        return
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.backends.mkldnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _transformers_reads_known_numbers() -> Iterator[None]:
    """Let transformers read the known values of fake tensors.

    By default, transformers does not read the values of fake tensors and runs code that is correct
    for all values. For example, transformers applies a mask that does not mask any token, but skips
    this mask on a card.
    """
    module: Any = sys.modules.get("transformers.utils.import_utils")
    is_fake: Any = getattr(module, "is_fake_tensor", None)
    if is_fake is None:
        yield
        return

    def is_unknown(tensor: Any) -> bool:
        known = isinstance(tensor, FakeTensor) and known_numbers.numbers_of(tensor) is not None
        return bool(is_fake(tensor)) and not known

    module.is_fake_tensor = is_unknown
    try:
        yield
    finally:
        module.is_fake_tensor = is_fake
