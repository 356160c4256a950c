"""Steps of random programs: operations on live tensors, selected by integers."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

MOST_LIVE = 9
MOST_ELEMENTS = 200


class Skip(Exception):
    """Skips a step whose result would be undefined or too large."""


class State:
    """The tensors of a running program."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.live = tensors
        self.device = tensors[0].device.type

    def __getitem__(self, choice: int) -> torch.Tensor:
        return self.live[choice % len(self.live)]

    def add(self, tensor: torch.Tensor) -> None:
        if tensor.numel() > MOST_ELEMENTS:
            raise Skip
        self.live.append(tensor)
        if len(self.live) > MOST_LIVE:
            del self.live[3]


def share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def like(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the values of b in the shape of a."""
    flat = b.reshape(-1)
    if flat.numel() == 0:
        return torch.ones_like(a)
    repeats = -(-max(a.numel(), 1) // flat.numel())
    return flat.repeat(repeats)[: a.numel()].reshape(a.shape)


def small(t: torch.Tensor) -> torch.Tensor:
    """Keep values small, so that multiples of a quarter stay exact."""
    return t.clamp(-8, 8) if t.is_floating_point() or t.dtype == torch.int32 else t


def dim_of(t: torch.Tensor, choice: int) -> int:
    if t.dim() == 0:
        raise Skip
    return choice % t.dim()


# New tensors
def divide_integers(s, i, j, k):
    integers = s[i].to(torch.int32)
    s.add((integers / 2) if k % 2 else torch.true_divide(integers, torch.full_like(integers, 4)))


def index(s, i, j, k):
    if s[i].dim() == 0 or s[i].shape[0] == 0:
        raise Skip
    rows = torch.tensor([j % s[i].shape[0], k % s[i].shape[0]], device=s.device)
    s.add(s[i][rows])


def cpu_operand(s, i, j, k):
    lazy = os.environ.get("PT_HPU_LAZY_MODE") == "1"
    other = torch.full(s[i].shape, float(k % 3), device="cpu" if lazy else s.device)
    s.add(small(s[i] + other))  # rejected in eager mode


# Views
def cut(s, i, j, k):
    d = dim_of(s[i], j)
    size = s[i].shape[d]
    start = k % (size + 1)
    s.add(s[i].narrow(d, start, min(j % 4, size - start)))


def every_other(s, i, j, k):
    dim_of(s[i], j)
    s.add(s[i][k % 2 :: 2])


def select(s, i, j, k):
    d = dim_of(s[i], j)
    if s[i].shape[d] == 0:
        raise Skip
    s.add(s[i].select(d, k % s[i].shape[d]))


def bytes_as(s, i, j, k):
    if s[i].dtype == torch.bfloat16:
        s.add(s[i].view(torch.int16))
    else:
        s.add(s[i].view(torch.int32 if s[i].dtype == torch.float32 else torch.uint8))


def restride(s, i, j, k):
    t = s[i].reshape(-1)
    rows = 1 + j % 3
    if t.numel() < rows:
        raise Skip
    s.add(t.as_strided((rows, t.numel() // rows), (1, rows), t.storage_offset()))


# In-place operations
def add_(s, i, j, k):
    s[i].add_(like(s[i], s[j]).to(s[i].dtype))
    s[i].clamp_(-8, 8) if s[i].dtype != torch.bool else None


def add_part(s, i, j, k):
    dim_of(s[i], j)
    part = s[i][k % 2 :]
    part.copy_(like(part, s[i][: part.shape[0]].clone()))


def zero_part(s, i, j, k):
    dim_of(s[i], j)
    s[i][:: 1 + k % 3].zero_()


def index_put_(s, i, j, k):
    if s[i].dim() == 0 or s[i].shape[0] == 0:
        raise Skip
    s[i][torch.tensor([j % s[i].shape[0]], device=s.device)] = k % 3


def unsqueeze_(s, i, j, k):
    if s[i].dim() > 3:
        raise Skip
    s[i].unsqueeze_(k % (s[i].dim() + 1)) if j % 2 else s[i].squeeze_()


# Other sizes and storages for an existing tensor
def resize_(s, i, j, k):
    shape = [(j % 5,), (j % 4, k % 4), (2, j % 3, k % 3), (j % 12 + 1,)][k % 4]
    t = s[i]
    held = t.untyped_storage().nbytes() // t.element_size() if s.device == "cpu" else 0
    t.resize_(shape)
    # Initialize memory beyond the end of the old storage.
    elements = t.as_strided((t.numel(),), (1,), t.storage_offset())
    elements[len(elements) // 2 :].fill_(k % 3)
    if s.device == "cpu" and t.storage_offset() + len(elements) // 2 > held:
        raise Skip


def set_storage(s, i, j, k):
    shape = (max(s[j].numel() - k % 2, 0),)
    if s[i].dtype != s[j].dtype or not s[j].is_contiguous():
        raise Skip
    if s[i].shape == shape and not s[i].is_contiguous():
        raise Skip  # PyTorch keeps the strides, which may reach past the storage
    s[i].set_(s[j].untyped_storage(), s[j].storage_offset(), shape)


def data(s, i, j, k):
    s[i].data = s[j]


# out= variants, with outputs of the right or another size
def target(s, choice, result_of, *operands):
    """Return an output tensor of one of several kinds."""
    kind, chosen = choice % 6, s[choice // 6]
    if kind == 0:
        out = torch.empty(0, dtype=chosen.dtype, device=s.device)
    elif kind in (1, 2):
        flat = chosen.view(-1)
        at = (choice // 6) % (flat.numel() + 1)
        out = flat[at:at]
    elif kind == 3:
        out = chosen.t() if chosen.dim() == 2 else chosen
    else:
        out = chosen
    if s.device == "cpu" and out.numel() >= 0:
        # Partial overlap of an output and an operand has no defined result.
        result = result_of()
        results = result if isinstance(result, tuple) else (result,)
        for operand in operands:
            if share(operand, out) and not (
                operand.shape == out.shape == results[0].shape
                and operand.stride() == out.stride()
                and operand.storage_offset() == out.storage_offset()
            ):
                raise Skip
    return out


def out_of(compute):
    """Return a step that writes the result of `compute(s, i, j, out)` to a selected tensor."""

    def step(s, i, j, k):
        out = target(s, k, lambda: compute(s, i, j, {}), s[i], s[j])
        compute(s, i, j, {"out": out})
        if s.device == "cpu" and out.numel() > MOST_ELEMENTS:
            raise Skip
        s.add(out)

    return step


def pair_out_of(compute):
    """Like `out_of`, but for steps with two results: values and indices."""

    def step(s, i, j, k):
        values = target(s, k, lambda: compute(s, i, j, {}), s[i])
        indices = torch.zeros(k % 3, dtype=torch.int64, device=s.device)
        compute(s, i, j, {"out": (values, indices)})
        s.add(values)
        s.add(indices)

    return step


STEPS: dict[str, Callable[..., object]] = {
    # New tensors
    "add": lambda s, i, j, k: s.add(small(s[i] + like(s[i], s[j]))),
    "sub": lambda s, i, j, k: s.add(small(torch.sub(s[i], like(s[i], s[j]), alpha=2))),
    "scale": lambda s, i, j, k: s.add(s[i] * 0.5),
    "broadcast_add": lambda s, i, j, k: s.add(small(s[i] + s[j])),
    "cat": lambda s, i, j, k: s.add(torch.cat([s[i].reshape(-1), s[j].reshape(-1)[: k % 5]])),
    "stack": lambda s, i, j, k: s.add(torch.stack([s[i], like(s[i], s[j])], k % (s[i].dim() + 1))),
    "where": lambda s, i, j, k: s.add(torch.where(s[i] > 0, s[i], like(s[i], s[j]))),
    "total": lambda s, i, j, k: s.add(small(s[i].sum(dim_of(s[i], j), keepdim=k % 2 == 0))),
    "clone": lambda s, i, j, k: s.add(
        s[i].clone(memory_format=torch.contiguous_format if k % 2 else torch.preserve_format)
    ),
    "cast": lambda s, i, j, k: s.add(
        s[i].to([torch.float32, torch.int32, torch.bfloat16, torch.bool][k % 4])
    ),
    "ones": lambda s, i, j, k: s.add(torch.ones(j % 4, k % 4, device=s.device)),
    "arange": lambda s, i, j, k: s.add(
        torch.arange(j % 7, device=s.device)
        if k % 2
        else torch.arange(0, j % 4, 0.5, device=s.device)
    ),
    "masked": lambda s, i, j, k: s.add(s[i][s[i] > k % 3 - 1]),
    "nonzero": lambda s, i, j, k: s.add(torch.nonzero(s[i])),
    # Views
    "transpose": lambda s, i, j, k: s.add(s[i].transpose(dim_of(s[i], j), dim_of(s[i], k))),
    "flat": lambda s, i, j, k: s.add(s[i].view(-1)),
    "reshape": lambda s, i, j, k: s.add(
        s[i].reshape(2, -1) if k % 2 else s[i].unsqueeze(dim_of(s[i], j))
    ),
    "expand": lambda s, i, j, k: s.add(s[i].expand(2, *s[i].shape)),
    # In-place operations
    "fill_": lambda s, i, j, k: s[i].fill_(k % 5 - 2),
    "copy_": lambda s, i, j, k: s[i].copy_(s[j]),
    "copy_from_host": lambda s, i, j, k: s[i].copy_(torch.full(s[i].shape, float(k % 4))),
    "masked_fill_": lambda s, i, j, k: s[i].masked_fill_(s[i] > 1, k % 3),
    "relu_": lambda s, i, j, k: torch.relu_(s[i]),
    "neg_into": lambda s, i, j, k: torch.neg(like(s[i], s[j]).to(s[i].dtype), out=s[i]),
    "transpose_": lambda s, i, j, k: s[i].transpose_(dim_of(s[i], j), dim_of(s[i], k)),
    "set_": lambda s, i, j, k: s[i].set_(s[j].clone() if k % 2 else s[j]),
    # Reads and settings
    "default_dtype": lambda s, i, j, k: torch.set_default_dtype(
        [torch.float32, torch.bfloat16, torch.float64][k % 3]
    ),
    "item": lambda s, i, j, k: s[i].reshape(-1)[0].item() if s[i].numel() else None,
    "tolist": lambda s, i, j, k: s[i].tolist(),
    "to_host": lambda s, i, j, k: s[i].cpu().tolist(),
    "storage_size": lambda s, i, j, k: s[i].untyped_storage().nbytes(),
}
STEPS |= {
    "add_out": out_of(lambda s, i, j, out: torch.add(s[i], like(s[i], s[j]), **out)),
    "broadcast_out": out_of(lambda s, i, j, out: torch.maximum(s[i], s[j], **out)),
    "mul_out": out_of(lambda s, i, j, out: torch.mul(s[i], torch.ones_like(s[i]), **out)),
    "cat_out": out_of(
        lambda s, i, j, out: torch.cat([s[i].reshape(-1), s[j].reshape(-1)[:3]], **out)
    ),
    "stack_out": out_of(lambda s, i, j, out: torch.stack([s[i], like(s[i], s[j])], **out)),
    "sum_out": out_of(lambda s, i, j, out: torch.sum(s[i], dim_of(s[i], j), **out)),
    "amax_out": out_of(lambda s, i, j, out: torch.amax(s[i], dim_of(s[i], j), **out)),
    "argmax_out": out_of(lambda s, i, j, out: torch.argmax(s[i], dim_of(s[i], j), **out)),
    "clamp_out": out_of(lambda s, i, j, out: torch.clamp(s[i], -1, 1, **out)),
    "neg_out": out_of(lambda s, i, j, out: torch.neg(s[i], **out)),
    "abs_out": out_of(lambda s, i, j, out: torch.abs(s[i], **out)),
    "eq_out": out_of(lambda s, i, j, out: torch.eq(s[i], 0, **out)),
    "where_out": out_of(lambda s, i, j, out: torch.where(s[i] > 0, s[i], like(s[i], s[j]), **out)),
    "arange_out": out_of(lambda s, i, j, out: torch.arange(j % 6, **(out or {"device": s.device}))),
    "index_select_out": out_of(
        lambda s, i, j, out: torch.index_select(
            s[i], 0, torch.zeros(j % 3, dtype=torch.int64, device=s.device), **out
        )
    ),
    "gather_out": out_of(
        lambda s, i, j, out: torch.gather(
            s[i], 0, torch.zeros(s[i].shape, dtype=torch.int64, device=s.device), **out
        )
    ),
    "matmul_out": out_of(lambda s, i, j, out: torch.matmul(s[i], s[i].mT.clamp(0, 1), **out)),
    "max_out": pair_out_of(lambda s, i, j, out: torch.max(s[i], dim_of(s[i], j), **out)),
    "sort_out": pair_out_of(
        lambda s, i, j, out: torch.sort(s[i], stable=True, dim=dim_of(s[i], j), **out)
    ),
    # The CPU kernel reads beyond an expanded tensor.
    "median_out": pair_out_of(
        lambda s, i, j, out: torch.median(
            s[i].contiguous() if s.device == "cpu" else s[i], dim_of(s[i], j), **out
        )
    ),
}


def drop(s, i, j, k):
    if len(s.live) < 5:
        raise Skip
    del s.live[3 + i % (len(s.live) - 3)]


def mark_step(s, i, j, k):
    if s.device == "hpu":
        from habana_frameworks.torch import core as htcore

        htcore.mark_step()


STEPS |= {
    step.__name__: step
    for step in [
        *(divide_integers, index, cpu_operand, cut, every_other, select, bytes_as, restride),
        *(add_, add_part, zero_part, index_put_, unsqueeze_, resize_, set_storage, data, drop),
        mark_step,
    ]
}
READS = {"item", "tolist", "to_host", "storage_size"}
# A capture rejects steps that read values on the host or write values from the host.
CAPTURABLE = sorted(set(STEPS) - READS - {"masked", "nonzero", "copy_from_host", "set_storage"})
# Dynamo cannot trace steps that change the dtype of a tensor, or the size of an output.
UNTRACEABLE = {"data", "set_", "default_dtype", *(name for name in STEPS if name.endswith("_out"))}
COMPILABLE = sorted({*CAPTURABLE, "item", "tolist"} - UNTRACEABLE)
