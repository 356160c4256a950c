"""Fake tensors on the card for a model and its inputs, with the same shapes but no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import known_numbers, nests
from hpu_magic.estimates.tracing.fake_card import device_type
from hpu_magic.estimates.tracing.nests import described
from hpu_magic.estimates.tracing.untouched import untouched, unwrap

ORIGINAL = "original"
"""Attribute of a fake parameter with the model's parameter."""


@dataclass(frozen=True)
class Twins:
    """The fake tensors of a model, by name; a tied tensor is listed once, with its first name."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, torch.Tensor]


@contextmanager
def fake_tensors(model: nn.Module, dtype: torch.dtype | None, *, training: bool) -> Iterator[Twins]:
    """Replace a model's tensors by fake tensors on the card, and restore its modules afterwards.

    Modules may store computed values, such as masks or caches; inside the block, these are fake.

    Parameters
    ----------
    model : nn.Module
        A model on any device.
    dtype : torch.dtype or None
        Type of its floating point parameters; by default, it does not change. Buffers keep their
        type: buffers for computations, such as running means, are small, and others, such as the
        angles of rotary embeddings, remain in float32 if a model is loaded in another type.
    training : bool
        Whether the model is in training mode inside the block.
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
    """Replace the states of a torchmetrics metric, which are neither parameters nor buffers."""
    attributes = vars(module)
    defaults = attributes.get("_defaults")
    if not isinstance(defaults, dict) or "_device" not in attributes:
        return
    attributes["_device"] = torch.device(device_type())
    for name in defaults:
        if isinstance(state := attributes.get(name), torch.Tensor):
            attributes[name] = _fake(state, None)


def inputs(given: Any, dtype: torch.dtype | None, batch: int | None) -> Any:
    """Return the inputs with fake tensors.

    Parameters
    ----------
    given : any nest of tuples, lists, mappings and dataclasses
        Inputs of the model, with tensors on any device.
    dtype : torch.dtype or None
        Type of floating point tensors; by default, it does not change.
    batch : int or None
        New size of the first dimension, for all tensors in which it is equal to the first tensor's.

    Raises
    ------
    EstimateError
        A tensor is not dense, or no tensor has a first dimension.
    """
    first = next((each.shape[0] for each in nests.tensors(given) if each.dim()), None)
    if first is None and batch is not None:
        raise EstimateError(
            "The inputs have no batch dimension; pass inputs with one, or no batch."
        )

    def twin(one: torch.Tensor) -> torch.Tensor:
        if one.layout is not torch.strided:
            raise EstimateError(
                f"An input is {described(one)} with layout {one.layout}, but must be dense: use "
                "to_dense()."
            )
        resized = batch is not None and one.dim() and one.shape[0] == first
        shape = (batch, *one.shape[1:]) if resized else one.shape
        kind = dtype if dtype is not None and one.is_floating_point() else one.dtype
        fake = torch.empty(shape, dtype=kind, device=device_type())
        if one.device.type == "cpu" and not one.is_floating_point():
            known_numbers.set_numbers(fake, _of_rows(one, shape))
        return fake

    return nests.mapped(given, twin)


def _of_rows(one: torch.Tensor, shape: Any) -> torch.Tensor:
    """Return a tensor of a batch of another size, repeating or omitting rows."""
    with unset_fake_temporarily():
        same = one.shape == shape
        # A copy, because the model may write to it.
        return one.clone() if same else one[torch.arange(shape[0]) % one.shape[0]]


def _parameter(one: nn.Parameter, dtype: torch.dtype | None) -> nn.Parameter:
    twin = nn.Parameter(_fake(one, dtype), requires_grad=one.requires_grad)
    vars(twin).update(vars(one))  # libraries add attributes, for example against weight decay
    vars(twin)[ORIGINAL] = one
    return twin


def _fake(one: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    kind = dtype if dtype is not None and one.is_floating_point() else one.dtype
    return torch.empty_strided(tuple(one.shape), one.stride(), dtype=kind, device=device_type())
