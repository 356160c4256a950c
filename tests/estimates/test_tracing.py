"""Test operations and memory of a step that is traced without being computed."""

import pytest
import torch

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.memory import peak
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.program import Phase, Role
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

nn = torch.nn


@pytest.fixture
def two_layers():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def traced(model, *inputs, **options):
    return trace_step(model, inputs, {}, StepOptions(**options))


def test_each_operation_has_a_module_and_a_phase(two_layers):
    program = traced(two_layers, torch.ones(2, 8), optimizer=maker("sgd"))
    found = [
        (str(each.operator), each.module, each.phase.value)
        for each in program.operations
        if "mm" in str(each.operator)
        or "relu" in str(each.operator)
        or each.phase is Phase.OPTIMIZER
    ]
    assert found == [
        ("aten.addmm.default", "0", "forward"),
        ("aten.relu.default", "1", "forward"),
        ("aten.addmm.default", "2", "forward"),
        ("aten.mm.default", "2", "backward"),
        ("aten.mm.default", "2", "backward"),
        ("aten.mm.default", "0", "backward"),
        *[("aten.add_.Tensor", "", "optimizer")] * 4,
    ]


def test_roles_have_the_expected_sizes(two_layers):
    program = traced(two_layers, torch.ones(2, 8), optimizer=maker("adam"))
    weights = 4 * sum(each.numel() for each in two_layers.parameters())
    assert program.of_role(Role.WEIGHTS) == program.of_role(Role.GRADIENTS) == weights
    assert program.of_role(Role.OPTIMIZER) == 2 * weights
    assert program.of_role(Role.INPUTS) == 2 * 8 * 4


def test_trace_does_not_depend_on_the_models_device(two_layers):
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.ones(2, 8)
    one, other = (traced(model, x, optimizer=maker("adam")) for model in (empty, two_layers))
    assert [str(each.operator) for each in one.operations] == [
        str(each.operator) for each in other.operations
    ]
    assert peak(one, recorded=False) == peak(other, recorded=False)


def test_model_is_restored(two_layers):
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = two_layers
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.last = self.inner(x)
            self.register_buffer("mask", x > 0)
            return self.last

    model = Remembering().eval()
    before = dict(model.state_dict(keep_vars=True))
    traced(model, torch.ones(2, 8), train=True)
    after = model.state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is before[name] for name in before)
    assert not hasattr(model, "last")
    assert [module.training for module in model.modules()] == [False] * 5
    assert all(each.grad is None for each in model.parameters())


def test_recomputed_operations_have_their_own_phase(two_layers):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = two_layers

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    program = traced(Checkpointed(), torch.ones(2, 8))
    recomputed = [
        str(each.operator) for each in program.of_phase(Phase.RECOMPUTED) if not each.is_view
    ]
    assert recomputed == ["aten.addmm.default", "aten.relu.default"]


def test_unknown_optimizer_is_refused_with_the_known_ones():
    with pytest.raises(EstimateError, match=r"optimizer='adamx' is not in .*fusedadamw"):
        maker("adamx")


def test_memory_is_that_of_live_storages():
    program = traced(nn.ReLU(), torch.ones(1024), train=False)
    found = peak(program, recorded=False)
    assert (found.bytes, found.by_role) == (8192, {Role.INPUTS: 4096, Role.TEMPORARY: 4096})
