"""Random calls of collectives on the device, compared with gloo on the CPU."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

REDUCTIONS = (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX)
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


def operand(draw: random.Random, seed: int, shape: tuple[int, ...], dtype: torch.dtype):
    """Return a CPU tensor of small numbers and the memory layout for its copy on the device."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 4, shape, generator=generator)
    return values.to(torch.float32).to(dtype), draw.choice(("plain", "strided", "transposed"))


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a copy on the device with the specified memory layout."""
    on_device = tensor.to("hpu")
    if layout == "strided" and tensor.dim() > 0:
        wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), dtype=tensor.dtype)
        view = wide.to("hpu")[..., 1::2]
        return view.copy_(on_device)
    if layout == "transposed" and tensor.dim() > 1:
        return on_device.transpose(0, 1).contiguous().transpose(0, 1)
    return on_device


def reference(tensor: torch.Tensor, reduced: bool) -> torch.Tensor:
    """Return the tensor in a dtype that gloo supports."""
    if reduced:
        return tensor if tensor.dtype in (torch.float32, torch.bfloat16) else tensor.float()
    return tensor if tensor.dtype == torch.float32 else tensor.float()


class Call:
    """A random collective in the default group, with the same choices on all ranks."""

    def __init__(self, seed: int):
        draw = random.Random(seed)
        rank, size = dist.get_rank(), dist.get_world_size()
        name = draw.choice(sorted(COLLECTIVES))
        self.dtype, shape = draw.choice(DTYPES), draw.choice(SHAPES)
        self.reduction = draw.choice(REDUCTIONS)
        self.root = draw.randrange(size)
        self.asynchronous = draw.random() < 0.5
        self.tag = draw.randrange(3)
        self._collective, self._counts = COLLECTIVES[name]
        self.description = f"{name} of {self.dtype} {shape} with {self.reduction}, seed {seed}"
        reduced = "reduce" in name
        input_count, output_count = self._counts(size)
        inputs = [
            operand(draw, seed * 64 + rank * 8 + i, shape, self.dtype) for i in range(input_count)
        ]
        outputs = [operand(draw, seed * 64 + 61, shape, self.dtype) for _ in range(output_count)]
        self._on_device = [[laid_out(*each) for each in part] for part in (inputs, outputs)]
        self._on_cpu = [
            [reference(each, reduced) for each, _ in part] for part in (inputs, outputs)
        ]
        self._shape = shape

    def start(self):
        """Start the collective on the device."""
        self._work = self._collective(self, *self._on_device)

    def finish(self):
        """Compare the device's results with gloo's."""
        if self.asynchronous and self._work is not None:
            self._work.wait()
        work = self._collective(self, *self._on_cpu)
        if self.asynchronous and work is not None:
            work.wait()
        for found, expected in zip(self._on_device, self._on_cpu, strict=True):
            for each, other in zip(found, expected, strict=True):
                other = other.to(self.dtype)
                assert each.dtype == other.dtype, self.description
                torch.testing.assert_close(
                    each.cpu(), other, msg=lambda text: f"{self.description}: {text}"
                )


def check(first: int, count: int):
    """Make ``count`` calls, of which up to four run at once and finish in random order."""
    draw = random.Random(first)
    seeds = iter(range(first, first + count))
    while calls := [Call(seed) for seed in itertools.islice(seeds, draw.randint(1, 4))]:
        for call in calls:
            call.start()
        draw.shuffle(calls)
        for call in calls:
            call.finish()


def all_reduce(call: Call, inputs: list, outputs: list):
    return dist.all_reduce(inputs[0], call.reduction, async_op=call.asynchronous)


def broadcast(call: Call, inputs: list, outputs: list):
    return dist.broadcast(inputs[0], call.root, async_op=call.asynchronous)


def reduce(call: Call, inputs: list, outputs: list):
    kept = inputs[0].clone()
    work = dist.reduce(inputs[0], call.root, call.reduction, async_op=call.asynchronous)
    if work is not None:
        work.wait()
    if dist.get_rank() != call.root:
        if inputs[0].device.type == "hpu":
            assert torch.equal(inputs[0].cpu(), kept.cpu()), call.description
        inputs[0].copy_(kept)  # gloo overwrites inputs with partial results
    return work


def all_gather(call: Call, inputs: list, outputs: list):
    return dist.all_gather(outputs, inputs[0], async_op=call.asynchronous)


def gather(call: Call, inputs: list, outputs: list):
    gathered = outputs if dist.get_rank() == call.root else None
    return dist.gather(inputs[0], gathered, dst=call.root, async_op=call.asynchronous)


def scatter(call: Call, inputs: list, outputs: list):
    scattered = inputs if dist.get_rank() == call.root else None
    return dist.scatter(outputs[0], scattered, src=call.root, async_op=call.asynchronous)


def all_gather_into_tensor(call: Call, inputs: list, outputs: list):
    if outputs[0].device.type == "cpu":
        return dist.all_gather(outputs, inputs[0], async_op=call.asynchronous)
    gathered = torch.empty(len(outputs), *inputs[0].shape, dtype=call.dtype, device="hpu")
    dist.all_gather_into_tensor(gathered, inputs[0])
    for target, row in zip(outputs, gathered, strict=True):
        target.copy_(row)
    return None


def reduce_scatter_tensor(call: Call, inputs: list, outputs: list):
    if outputs[0].device.type == "cpu":
        return reduce_scatter(call, inputs, outputs)
    return dist.reduce_scatter_tensor(
        outputs[0], torch.stack(inputs), call.reduction, async_op=call.asynchronous
    )


def reduce_scatter(call: Call, inputs: list, outputs: list):
    if outputs[0].device.type == "hpu":
        return dist.reduce_scatter(outputs[0], inputs, call.reduction, async_op=call.asynchronous)
    summed = torch.stack(inputs)  # older releases of gloo lack reduce_scatter
    dist.all_reduce(summed, call.reduction)
    outputs[0].copy_(summed[dist.get_rank()])
    return None


def all_to_all(call: Call, inputs: list, outputs: list):
    if outputs[0].device.type == "hpu":
        return dist.all_to_all(outputs, inputs, async_op=call.asynchronous)
    received = torch.empty(len(outputs), outputs[0].numel(), dtype=outputs[0].dtype)
    dist.all_to_all_single(received, torch.stack(inputs).view(len(inputs), inputs[0].numel()))
    for target, row in zip(outputs, received, strict=True):
        target.copy_(row.view(target.shape))
    return None


def send_and_recv(call: Call, inputs: list, outputs: list):
    """Send to the next rank and receive from the previous one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    following, before = (rank + 1) % size, (rank - 1) % size
    sent = dist.isend(inputs[0], following, tag=call.tag)
    dist.recv(outputs[0], before, tag=call.tag)
    sent.wait()
    return


# Functions, with the numbers of their inputs and outputs for a number of ranks.
COLLECTIVES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[int, int]]]] = {
    "all_reduce": (all_reduce, lambda size: (1, 0)),
    "broadcast": (broadcast, lambda size: (1, 0)),
    "reduce": (reduce, lambda size: (1, 0)),
    "all_gather": (all_gather, lambda size: (1, size)),
    "all_gather_into_tensor": (all_gather_into_tensor, lambda size: (1, size)),
    "gather": (gather, lambda size: (1, size)),
    "scatter": (scatter, lambda size: (size, 1)),
    "reduce_scatter": (reduce_scatter, lambda size: (size, 1)),
    "reduce_scatter_tensor": (reduce_scatter_tensor, lambda size: (size, 1)),
    "all_to_all": (all_to_all, lambda size: (size, size)),
    "send_and_recv": (send_and_recv, lambda size: (1, 1)),
}
