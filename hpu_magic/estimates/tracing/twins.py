"""A model's tensors and inputs as fake ones on the card: same shapes, no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing import known_numbers, nests, plain_forward
from hpu_magic.estimates.tracing.nests import described
from hpu_magic.estimates.tracing.place import device_type
from hpu_magic.estimates.tracing.untouched import untouched

STANDS_FOR = "stands_for"
"""Attribute of a fake parameter: the model's own."""


@dataclass(frozen=True)
class Twins:
    """The fake tensors of a model, by name; a tied one is there once, under its first name."""

    parameters: dict[str, nn.Parameter]
    buffers: dict[str, torch.Tensor]


@contextmanager
def fake_tensors(model: nn.Module, dtype: torch.dtype | None, *, training: bool) -> Iterator[Twins]:
    """Let a model have fake tensors on the card, and leave each of its modules as it was.

    Modules may note what they compute, such as masks or caches; what they note here is fake.

    Parameters
    ----------
    model : nn.Module
        On any device.
    dtype : torch.dtype or None
        Type of its floating point parameters; their own if None. Buffers keep theirs: those that
        are computed with, as running means are, are small, and those that are not, as the angles of
        rotary embeddings, stay in float32 with who loads a model in another type.
    training : bool
        Whether it is in training mode meanwhile.
    """
    with untouched(model):
        model.train(training)
        parameters = {name: _parameter(one, dtype) for name, one in model.named_parameters()}
        buffers = {name: _fake(one, None) for name, one in model.named_buffers()}
        twin: dict[int, Any] = {id(one): parameters[name] for name, one in model.named_parameters()}
        twin |= {id(one): buffers[name] for name, one in model.named_buffers()}
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                table.update(
                    {name: twin[id(one)] for name, one in table.items() if one is not None}
                )
            _bring_states(module)
            plain_forward.unwrap(module)
        yield Twins(parameters, buffers)


def _bring_states(module: nn.Module) -> None:
    """Have a metric of torchmetrics count on the card: its states are neither kind of tensor."""
    attributes = vars(module)
    defaults = attributes.get("_defaults")
    if not isinstance(defaults, dict) or "_device" not in attributes:
        return
    attributes["_device"] = torch.device(device_type())
    for name in defaults:
        if isinstance(state := attributes.get(name), torch.Tensor):
            attributes[name] = _fake(state, None)


def inputs(given: Any, dtype: torch.dtype | None, batch: int | None) -> Any:
    """Return the inputs with fake tensors in the place of theirs.

    Parameters
    ----------
    given : any nest of tuples, lists, mappings and dataclasses
        What the model is called with; tensors may be on any device.
    dtype : torch.dtype or None
        Type of floating point tensors; their own if None.
    batch : int or None
        Size of the first dimension of each tensor that has the first one's; as given if None.

    Raises
    ------
    EstimateError
        A tensor is not dense, or there is nothing whose number of samples could be another.
    """
    first = next((one.shape[0] for one in nests.tensors(given) if one.dim()), None)
    if first is None and batch is not None:
        raise EstimateError("There is no batch to size: none of the inputs has a first dimension.")

    def twin(one: torch.Tensor) -> torch.Tensor:
        if one.layout is not torch.strided:
            raise EstimateError(
                f"An input is {described(one)} with layout {one.layout}, and an estimate takes "
                "dense tensors: give it with to_dense()."
            )
        resized = batch is not None and one.dim() and one.shape[0] == first
        shape = (batch, *one.shape[1:]) if resized else one.shape
        kind = dtype if dtype is not None and one.is_floating_point() else one.dtype
        fake = torch.empty(shape, dtype=kind, device=device_type())
        if one.device.type == "cpu" and not one.is_floating_point():
            known_numbers.tell(fake, _of_rows(one, shape))
        return fake

    return nests.mapped(given, twin)


def _of_rows(one: torch.Tensor, shape: Any) -> torch.Tensor:
    """Return a tensor of a batch of another size, with the rows that there are over again."""
    with unset_fake_temporarily():
        same = one.shape == shape
        # A copy, which the model may write to.
        return one.clone() if same else one[torch.arange(shape[0]) % one.shape[0]]


def _parameter(one: nn.Parameter, dtype: torch.dtype | None) -> nn.Parameter:
    twin = nn.Parameter(_fake(one, dtype), requires_grad=one.requires_grad)
    vars(twin).update(vars(one))  # libraries mark parameters, such as those that do not decay
    vars(twin)[STANDS_FOR] = one
    return twin


def _fake(one: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    kind = dtype if dtype is not None and one.is_floating_point() else one.dtype
    return torch.empty_strided(tuple(one.shape), one.stride(), dtype=kind, device=device_type())
