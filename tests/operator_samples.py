"""PyTorch's operator database: fast samples, and their calls on the device."""

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

# A few samples have millions of elements and take a minute without testing more.
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
    """Seed all random number generators."""
    # torch.manual_seed also records the call stack for each missing kind of device, which takes
    # longer than most samples.
    torch.default_generator.manual_seed(number)
    torch.hpu.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


@contextlib.contextmanager
def quick_samples() -> Iterator[None]:
    """Generate samples faster, and run them on one thread."""
    # The samples are tiny; threads of two test processes would only wait for each other.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_utils, "set_rng_seed", seed)
        # This function would read the source of each caller.
        for module in (common_utils, opinfo_core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        yield
    torch.set_num_threads(threads)


def name_of(op: Any) -> str:
    """Return the name of an operator and its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a tree of values."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def elements(sample: Any) -> int:
    """Return the total number of elements in the tensors of a sample."""
    return sum(tensor.numel() for tensor in tensors((sample.input, sample.args, sample.kwargs)))


def to_hpu(value: Any) -> Any:
    """Return a copy of a CPU tensor on the device, or the device in place of the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("hpu").requires_grad_(value.requires_grad)
    return torch.device("hpu") if isinstance(value, torch.device) or value == "cpu" else value


def on_hpu(sample: Any) -> Any:
    """Return a sample with all tensors on the device."""
    moved = sample.transform(to_hpu)
    moved.kwargs = tree_map(to_hpu, moved.kwargs)
    return moved


def call(op: Any, sample: Any) -> Any:
    """Call an operator with the same random numbers each time."""
    seed()
    return op(sample.input, *sample.args, **sample.kwargs)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, **tolerances: float) -> None:
    """Compare types, shapes and values; a NaN equals another NaN."""
    # Most values are equal, which `torch.equal` finds in a fraction of the time.
    supported = torch.complex32 not in (actual.dtype, expected.dtype)
    if not supported or actual.dtype != expected.dtype or not torch.equal(actual, expected):
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)


def gradients(sample: Any, results: list[torch.Tensor]) -> Any:
    """Return the gradients of a sample's tensors, or an empty list if there are none."""
    inputs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    outputs = [t for t in results if t.requires_grad]
    if not inputs or not outputs:
        return []
    return torch.autograd.grad(
        outputs, inputs, [torch.ones_like(t) for t in outputs], allow_unused=True
    )
