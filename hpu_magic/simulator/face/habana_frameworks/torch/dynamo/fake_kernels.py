"""Fake kernels for operators whose predicted outputs depend on the device.

The device uses CPU kernels, so PyTorch's predictions for the CPU are correct. For other devices,
PyTorch predicts that convolutions, group norms and elementwise operators return contiguous outputs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from hpu_magic.simulator import cards
from torch._decomp import decomposition_table
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
_BY_DEVICE = frozenset(
    {
        aten.convolution.default,
        aten._convolution.default,
        aten._convolution.deprecated,
        aten.convolution_backward.default,
    }
)
_GROUPED = frozenset({getattr(aten, "_grouped_mm", aten.mm).default}) - {aten.mm.default}
_BY_REFERENCE = (aten.native_group_norm.default,)
"""Operators for which PyTorch uses a device-dependent reference implementation if sizes are
symbolic."""


def register() -> None:
    """Register the fake kernels; call once per process."""
    fake_impls.op_implementations_checks.insert(0, (_BY_DEVICE.__contains__, _on_cpu))
    fake_impls.op_implementations_checks.insert(0, (_creates_tensors, _on_chosen_card))
    fake_impls.op_implementations_checks.insert(0, (_GROUPED.__contains__, _grouped_product))
    for op in _BY_REFERENCE:
        fake_impls.register_fast_op_impl(op)(functools.partial(_by_cpu_reference, op=op))
    for module in (fake_impls, torch._refs):
        if hasattr(module, "is_noncontiguous_supported"):
            module.is_noncontiguous_supported = _keeps_strides


def _keeps_strides(device: torch.device | None) -> bool:
    """Return True, because outputs may be non-contiguous on every device."""
    return True


def _creates_tensors(op: Any) -> bool:
    return op in fake_impls._like_tensor_constructors or fake_impls._is_tensor_constructor(op)


def _on_chosen_card(mode: FakeTensorMode, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Select card 3 for a tensor on ``hpu:3``, and place the tensor on ``hpu:0``."""
    device = kwargs.get("device")
    if device is None or device.type != "hpu" or not device.index:
        return NotImplemented
    cards.choose(device.index)
    with mode:
        return op(*args, **{**kwargs, "device": torch.device("hpu", 0)})


def _on_cpu(mode: FakeTensorMode, op: Any, *args: Any, **kwargs: Any) -> Any:
    leaves = tree_leaves((args, kwargs))
    device = next((each.fake_device for each in leaves if isinstance(each, FakeTensor)), None)
    if device is None or device.type != "hpu":
        return NotImplemented
    with mode:
        args, kwargs = tree_map_only(FakeTensor, lambda each: _placed(each, "cpu"), (args, kwargs))
        results = op(*args, **kwargs)
        return tree_map_only(FakeTensor, lambda each: _placed(each, device), results)


def _grouped_product(mode: FakeTensorMode, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Predict the shape in bfloat16, because PyTorch rejects dtypes that CUDA does not support."""
    dtype = args[0].dtype
    if dtype == torch.bfloat16:
        return NotImplemented
    with mode:
        factors = (each.to(torch.bfloat16) for each in args[:2])
        return op(*factors, *args[2:], **kwargs).to(dtype)


def _by_cpu_reference(mode: FakeTensorMode, *args: Any, op: Any, **kwargs: Any) -> Any:
    results = _on_cpu(mode, op, *args, **kwargs)
    if results is NotImplemented:
        with mode:
            results = decomposition_table[op](*args, **kwargs)
    return results


def _placed(tensor: FakeTensor, device: torch.device | str) -> torch.Tensor:
    """Return a fake tensor on `device` with the same sizes and strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
