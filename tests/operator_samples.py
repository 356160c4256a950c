"""PyTorch's database of operators: samples that come quickly, and their calls on the device."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core as opinfo_core
from torch.utils._pytree import tree_leaves, tree_map

# A few samples have millions, which takes a minute and shows no more than thousands do.
MOST_ELEMENTS = 100_000
CSR = "HPU tensors have strided layout: compressed sparse inputs cannot be moved to the device"
SPARSE = {
    "sparse.mm.reduce": CSR,
    "sparse.sampled_addmm": CSR,
    "to_sparse": "HPU tensors have strided layout: the result would be sparse",
}
UNINITIALIZED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}


def seed(number: int = 1) -> None:
    """Start all random numbers anew."""
    # torch.manual_seed also notes the call stack for every kind of device that the machine lacks,
    # which takes longer than most samples.
    torch.default_generator.manual_seed(number)
    torch.hpu.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


@contextlib.contextmanager
def quick_samples() -> Iterator[None]:
    """Make samples quickly, and run them on one thread."""
    # The samples are tiny: two test processes with two threads each would only wait for another.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_utils, "set_rng_seed", seed)
        # Each look for PyTorch's own kind of test reads the source of every caller.
        for module in (common_utils, opinfo_core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        yield
    torch.set_num_threads(threads)


def name_of(op: Any) -> str:
    """Return an operator's name with that of its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a tree of values."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def elements(sample: Any) -> int:
    """Return how many elements the tensors of a sample have together."""
    return sum(tensor.numel() for tensor in tensors((sample.input, sample.args, sample.kwargs)))


def to_hpu(value: Any) -> Any:
    """Return a copy on the device of what lies on the CPU or names it."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("hpu").requires_grad_(value.requires_grad)
    return torch.device("hpu") if isinstance(value, torch.device) or value == "cpu" else value


def on_hpu(sample: Any) -> Any:
    """Return a sample with all its tensors on the device."""
    moved = sample.transform(to_hpu)
    moved.kwargs = tree_map(to_hpu, moved.kwargs)
    return moved


def call(op: Any, sample: Any) -> Any:
    """Call an operator with random numbers that are the same each time."""
    seed()
    return op(sample.input, *sample.args, **sample.kwargs)


def gradients(sample: Any, results: list[torch.Tensor]) -> Any:
    """Return the gradients of a sample's tensors, nothing where there are none."""
    inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    outputs = [t for t in results if t.requires_grad]
    if not inputs or not outputs:
        return []
    return torch.autograd.grad(
        outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True
    )
