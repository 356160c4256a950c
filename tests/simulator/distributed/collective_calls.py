"""Calls of collectives with random operands, and the same ones by gloo on the CPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

REDUCTIONS = (
    dist.ReduceOp.SUM,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.MIN,
    dist.ReduceOp.MAX,
)
DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.float8_e5m2,
)
SHAPES = ((6,), (1,), (), (0,), (4, 3), (2, 3, 5), (129,))


def operand(draw: random.Random, seed: int, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """Return a CPU tensor of small numbers and the way in which it shall lie in memory."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 4, shape, generator=generator)
    return values.to(torch.float32).to(dtype), draw.choice(("plain", "strided", "transposed"))


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the same values on the card, in an order of memory of choice."""
    on_card = tensor.to("hpu")
    if layout == "strided" and tensor.dim() > 0:
        wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), dtype=tensor.dtype)
        view = wide.to("hpu")[..., 1::2]
        return view.copy_(on_card)
    if layout == "transposed" and tensor.dim() > 1:
        return on_card.transpose(0, 1).contiguous().transpose(0, 1)
    return on_card


def reference(tensor: torch.Tensor, reduced: bool) -> torch.Tensor:
    """Return what gloo can take in the tensor's place."""
    if reduced:
        return tensor if tensor.dtype in (torch.float32, torch.bfloat16) else tensor.float()
    return tensor if tensor.dtype == torch.float32 else tensor.float()


class Call:
    """One collective over the default group, chosen alike on all ranks."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        rank, size = dist.get_rank(), dist.get_world_size()
        name = draw.choice(sorted(COLLECTIVES))
        self.dtype, shape = draw.choice(DTYPES), draw.choice(SHAPES)
        self.reduction = draw.choice(REDUCTIONS)
        self.root = draw.randrange(size)
        self.asynchronous = draw.random() < 0.5
        self.tag = draw.randrange(3)
        self._collective, self._parts = COLLECTIVES[name]
        self.described = f"{name} of {self.dtype} {shape} by {self.reduction}, seed {seed}"
        reduced = "reduce" in name
        inputs, outputs = self._parts(size)
        given = [operand(draw, seed * 64 + rank * 8 + i, shape, self.dtype) for i in range(inputs)]
        made = [operand(draw, seed * 64 + 61, shape, self.dtype) for _ in range(outputs)]
        self._on_card = [[laid_out(*each) for each in part] for part in (given, made)]
        self._on_cpu = [[reference(each, reduced) for each, _ in part] for part in (given, made)]
        self._shape = shape

    def start(self) -> None:
        """Begin on the card."""
        self._work = self._collective(self, *self._on_card)

    def finish(self) -> None:
        """Compare the card's results with gloo's."""
        if self.asynchronous and self._work is not None:
            self._work.wait()
        work = self._collective(self, *self._on_cpu)
        if self.asynchronous and work is not None:
            work.wait()
        for found, expected in zip(self._on_card, self._on_cpu, strict=True):
            for one, other in zip(found, expected, strict=True):
                other = other.to(self.dtype)
                assert one.dtype == other.dtype, self.described
                torch.testing.assert_close(
                    one.cpu(), other, msg=lambda text: f"{self.described}: {text}"
                )


def check(first: int, count: int) -> None:
    """Make that many calls, up to four on their way at once, which end in any order."""
    draw = random.Random(first)
    seeds = iter(range(first, first + count))
    while calls := [Call(seed) for seed in itertools.islice(seeds, draw.randint(1, 4))]:
        for call in calls:
            call.start()
        draw.shuffle(calls)
        for call in calls:
            call.finish()


def _of_one(size: int) -> tuple[int, int]:
    return 1, 0


def _of_all(size: int) -> tuple[int, int]:
    return 1, size


def _from_all(size: int) -> tuple[int, int]:
    return size, 1


def _all_to_all(size: int) -> tuple[int, int]:
    return size, size


def all_reduce(call: Call, given: list, made: list) -> Any:
    return dist.all_reduce(given[0], call.reduction, async_op=call.asynchronous)


def broadcast(call: Call, given: list, made: list) -> Any:
    return dist.broadcast(given[0], call.root, async_op=call.asynchronous)


def reduce(call: Call, given: list, made: list) -> Any:
    kept = given[0].clone()
    work = dist.reduce(given[0], call.root, call.reduction, async_op=call.asynchronous)
    if work is not None:
        work.wait()
    if dist.get_rank() != call.root:
        if given[0].device.type == "hpu":
            assert torch.equal(given[0].cpu(), kept.cpu()), call.described
        given[0].copy_(kept)  # gloo leaves partial results there
    return work


def all_gather(call: Call, given: list, made: list) -> Any:
    return dist.all_gather(made, given[0], async_op=call.asynchronous)


def gather(call: Call, given: list, made: list) -> Any:
    gathered = made if dist.get_rank() == call.root else None
    return dist.gather(given[0], gathered, dst=call.root, async_op=call.asynchronous)


def scatter(call: Call, given: list, made: list) -> Any:
    scattered = given if dist.get_rank() == call.root else None
    return dist.scatter(made[0], scattered, src=call.root, async_op=call.asynchronous)


def all_gather_into_tensor(call: Call, given: list, made: list) -> Any:
    if made[0].device.type == "cpu":
        return dist.all_gather(made, given[0], async_op=call.asynchronous)
    whole = torch.empty(len(made), *given[0].shape, dtype=call.dtype, device="hpu")
    dist.all_gather_into_tensor(whole, given[0])
    for target, row in zip(made, whole, strict=True):
        target.copy_(row)
    return None


def reduce_scatter_tensor(call: Call, given: list, made: list) -> Any:
    if made[0].device.type == "cpu":
        return reduce_scatter(call, given, made)
    return dist.reduce_scatter_tensor(
        made[0], torch.stack(given), call.reduction, async_op=call.asynchronous
    )


def reduce_scatter(call: Call, given: list, made: list) -> Any:
    if made[0].device.type == "hpu":
        return dist.reduce_scatter(made[0], given, call.reduction, async_op=call.asynchronous)
    summed = torch.stack(given)  # older releases of gloo have none
    dist.all_reduce(summed, call.reduction)
    made[0].copy_(summed[dist.get_rank()])
    return None


def all_to_all(call: Call, given: list, made: list) -> Any:
    if made[0].device.type == "hpu":
        return dist.all_to_all(made, given, async_op=call.asynchronous)
    received = torch.empty(len(made), made[0].numel(), dtype=made[0].dtype)
    dist.all_to_all_single(received, torch.stack(given).view(len(given), given[0].numel()))
    for target, row in zip(made, received, strict=True):
        target.copy_(row.view(target.shape))
    return None


def send_and_recv(call: Call, given: list, made: list) -> Any:
    """Round the ring, each to the next."""
    rank, size = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(given[0], following, tag=call.tag)
    dist.recv(made[0], before, tag=call.tag)
    sent.wait()
    return None


COLLECTIVES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[int, int]]]] = {
    "all_reduce": (all_reduce, _of_one),
    "broadcast": (broadcast, _of_one),
    "reduce": (reduce, _of_one),
    "all_gather": (all_gather, _of_all),
    "all_gather_into_tensor": (all_gather_into_tensor, _of_all),
    "gather": (gather, _of_all),
    "scatter": (scatter, _from_all),
    "reduce_scatter": (reduce_scatter, _from_all),
    "reduce_scatter_tensor": (reduce_scatter_tensor, _from_all),
    "all_to_all": (all_to_all, _all_to_all),
    "send_and_recv": (send_and_recv, lambda size: (1, 1)),
}
