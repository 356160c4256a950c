"""Replace the tensors of a model and its inputs with fake tensors that use no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import known_numbers
from hpu_magic.estimates.tracing.fake_card import device_type
from hpu_magic.estimates.tracing.untouched import untouched, unwrap
from hpu_magic.runtime.device import nests
from hpu_magic.runtime.device.nests import described

ORIGINAL = "original"
"""Attribute of a fake parameter that contains the model's original parameter."""


@dataclass(frozen=True)
class Twins:
    """Fake tensors of a model, keyed by name; a tied tensor appears only under its first name."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, torch.Tensor]


@contextmanager
def fake_tensors(model: nn.Module, dtype: torch.dtype | None, *, training: bool) -> Iterator[Twins]:
    """Replace a model's tensors with fake tensors on the card, and restore its modules afterwards.

    Any values that modules compute and store inside the with block, such as masks or caches, are
    fake as well.

    ``dtype`` is the dtype of floating-point parameters, or None to keep their dtypes. Buffers keep
    their dtypes: some, such as running means, are small, and others, such as the angles of rotary
    embeddings, stay in float32 when a model is loaded in another dtype.
    """
    with untouched(model):
        model.train(training)
        parameters = {name: _parameter(each, dtype) for name, each in model.named_parameters()}
        buffers = {name: _fake(each, None) for name, each in model.named_buffers()}
        twin: dict[int, Any] = {id(p): parameters[name] for name, p in model.named_parameters()}
        twin |= {id(b): buffers[name] for name, b in model.named_buffers()}
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                table.update(
                    {name: twin[id(each)] for name, each in table.items() if each is not None}
                )
            _replace_metric_states(module)
            unwrap(module)
        yield Twins(parameters, buffers)


def _replace_metric_states(module: nn.Module) -> None:
    """Replace the states of torchmetrics metrics, which are neither parameters nor buffers."""
    attributes = vars(module)
    defaults = attributes.get("_defaults")
    if not isinstance(defaults, dict) or "_device" not in attributes:
        return
    attributes["_device"] = torch.device(device_type())
    for name in defaults:
        if isinstance(state := attributes.get(name), torch.Tensor):
            attributes[name] = _fake(state, None)


def inputs(call: Any, dtype: torch.dtype | None, batch: int | None) -> Any:
    """Replace the tensors in nested inputs with fake tensors on the card.

    ``dtype`` is the dtype of floating-point tensors, or None to keep their dtypes. ``batch`` is the
    new batch size; it applies to each tensor whose first dimension has the same size as the first
    tensor's. Raises `EstimateError` if a tensor is not dense, or if all tensors are
    zero-dimensional.
    """
    first = next((each.shape[0] for each in nests.tensors(call) if each.dim()), None)
    if first is None and batch is not None:
        raise EstimateError(
            "The inputs have no batch dimension: pass inputs that have one, or omit batch."
        )

    def twin(item: torch.Tensor) -> torch.Tensor:
        if item.layout is not torch.strided:
            raise EstimateError(
                f"The input {described(item)} has the layout {item.layout}, but must be dense: use "
                "to_dense()."
            )
        resized = batch is not None and item.dim() and item.shape[0] == first
        shape = (batch, *item.shape[1:]) if resized else item.shape
        kind = dtype if dtype is not None and item.is_floating_point() else item.dtype
        fake = torch.empty(shape, dtype=kind, device=device_type())
        if item.device.type == "cpu" and not item.is_floating_point():
            known_numbers.set_numbers(fake, _of_rows(item, shape))
        return fake

    return nests.mapped(call, twin)


def _of_rows(tensor: torch.Tensor, shape: Any) -> torch.Tensor:
    """Change the batch size of a tensor by repeating or dropping rows."""
    with unset_fake_temporarily():
        same = tensor.shape == shape
        # Copy the tensor, because the model may write to it.
        return tensor.clone() if same else tensor[torch.arange(shape[0]) % tensor.shape[0]]


def _parameter(parameter: nn.Parameter, dtype: torch.dtype | None) -> nn.Parameter:
    twin = nn.Parameter(_fake(parameter, dtype), requires_grad=parameter.requires_grad)
    vars(twin).update(vars(parameter))  # libraries set attributes, for example to skip weight decay
    vars(twin)[ORIGINAL] = parameter
    return twin


def _fake(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=kind, device=device_type()
    )
