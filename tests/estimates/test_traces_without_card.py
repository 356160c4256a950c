"""Test traces in a process without a card, where CPU tensors replace device tensors."""

import pytest

_PROGRAM = """
import torch
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.program import Phase, Role
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

kind = torch.optim.KIND
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
options = StepOptions(train=True, optimizer=maker(kind(model.parameters())))
program = trace_step(model, (torch.ones(2, 8),), {}, options)
numbers = [
    each for each in program.operations
    if each.phase is Phase.OPTIMIZER and all(not operand.shape for operand in each.writes)
]
states = [each.bytes for each in program.storages if each.role is Role.OPTIMIZER]
assert not hasattr(torch, "hpu")
print(len(numbers), len(states))
"""


@pytest.mark.parametrize(("kind", "states"), [("AdamW", "4"), ("NAdam", "4"), ("Adagrad", "2")])
def test_step_counters_of_optimizers_are_not_on_the_card(forked_script, kind, states):
    assert forked_script(_PROGRAM.replace("KIND", kind)).split() == ["0", states]
