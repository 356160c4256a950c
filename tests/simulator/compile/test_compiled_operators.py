"""All operators of PyTorch's test database match eager mode when compiled, forward and backward.

`make compiled-operators` tests all operators, and the test suite every twentieth. The database is
sorted by kind, so this sample contains all kinds.
"""

import os

import pytest
import torch
from operator_samples import (
    MOST_ELEMENTS,
    SPARSE,
    UNINITIALIZED,
    assert_close,
    elements,
    gradients,
    name_of,
    on_hpu,
    quick_samples,
    seed,
    tensors,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal import common_methods_invocations
from torch.utils._pytree import tree_flatten

from hpu_magic.simulator import activate

activate(announce=False)

import torch._dynamo  # noqa: E402
from torch._dynamo.exc import TorchRuntimeError  # noqa: E402

ALL = "HPU_MAGIC_TEST_ALL_OPERATORS" in os.environ
EVERY = 1 if ALL else 20
MOST_GROUPS = 3 if ALL else 1  # a group contains samples that differ only in shapes and numbers

SKIPPED = {**SPARSE}


@pytest.fixture(autouse=True, scope="module")
def _quick_samples():
    with quick_samples(), pytest.MonkeyPatch.context() as patch:
        # Tests set the seeds, so the compiled function contains only the operator.
        patch.setattr(common_methods_invocations, "wrapper_set_seed", called)
        yield


def called(function, *args, **kwargs):
    return function(*args, **kwargs)


@pytest.fixture(autouse=True)
def _no_earlier_compilations():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def kind(leaf):
    """Return the properties that samples of one compiled function share."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dim(), leaf.dtype, leaf.requires_grad
    return (type(leaf),) if type(leaf) in (int, float) else (type(leaf), repr(leaf))


def groups_of(samples):
    """Group samples by compiled function, with at most two different shapes or numbers each."""
    groups = {}
    for sample in samples:
        if elements(sample) > MOST_ELEMENTS:
            continue
        leaves, tree = tree_flatten((sample.input, sample.args, sample.kwargs))
        group = groups.setdefault((str(tree), tuple(kind(leaf) for leaf in leaves)), [])
        values = [leaf.shape if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        if not group or (len(group) == 1 and str(values) != group[0][0]):
            group.append((str(values), sample))
    result = [[sample for _, sample in group] for group in groups.values()]
    result.sort(key=len, reverse=True)
    return result[:MOST_GROUPS]


def run(function, sample):
    seed()
    results = tensors(function(sample.input, sample.args, sample.kwargs))
    return results, gradients(sample, results)


def layouts(outcome):
    return [
        None if tensor is None else (tensor.dtype, tensor.shape, tensor.stride())
        for tensor in [*outcome[0], *outcome[1]]
    ]


def layouts_of_pytorch(function, samples, dynamic):
    """Return the layouts of PyTorch's compiler on the CPU, for real and fake tensors.

    The layouts are those of the last sample. In a few cases, both differ from eager mode.
    """
    torch._dynamo.reset()
    traced = torch.compile(function, backend="aot_eager", dynamic=dynamic)
    for sample in samples:
        real = layouts(run(traced, sample))
    with FakeTensorMode() as mode:
        fake = samples[-1].transform(
            lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf
        )
        return real, layouts(run(function, fake))


def check_values(op, actual, expected):
    for ours, theirs in zip(actual, expected, strict=True):  # results, gradients
        assert [each is None for each in ours] == [each is None for each in theirs]
        for result, reference in zip(ours, theirs, strict=True):
            if reference is not None:
                assert result.device == reference.device
                if op.name not in UNINITIALIZED:
                    assert_close(result, reference)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("op", common_methods_invocations.op_db[::EVERY], ids=name_of)
def test_compiled_operator_matches_eager_mode(op, dynamic):
    if op.name.startswith("jiterator"):
        pytest.skip("compiles CUDA code")
    if name_of(op) in SKIPPED:
        pytest.skip(SKIPPED[name_of(op)])
    if torch.float32 not in op.dtypes:
        pytest.skip("does not support float32")

    def eager(input, args, kwargs):
        return op.op(input, *args, **kwargs)

    with_gradients = op.supports_autograd and torch.float32 in op.backward_dtypes
    compared = 0
    for group in groups_of(op.sample_inputs("cpu", torch.float32, requires_grad=with_gradients)):
        torch._dynamo.reset()
        compiled = torch.compile(eager, backend="hpu_backend", dynamic=dynamic)
        for number, sample in enumerate(group):
            try:
                # A copy, since some operators write their inputs
                expected = run(eager, on_hpu(sample))
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue  # also invalid in eager mode
            try:
                actual = run(compiled, on_hpu(sample))
            except TorchRuntimeError:  # raised while tracing
                with pytest.raises(TorchRuntimeError):
                    layouts_of_pytorch(eager, group[: number + 1], dynamic)
                pytest.skip("PyTorch cannot trace it on the CPU either")
            check_values(op, actual, expected)
            if layouts(actual) != layouts(expected):
                by_pytorch = layouts_of_pytorch(eager, group[: number + 1], dynamic)
                assert layouts(actual) in by_pytorch
            compared += 1
    if not compared:
        pytest.skip("eager mode supports no sample")
