"""Test HPU Graphs without a tensor cache: memory that stays in use between replays."""

import pytest

KIB = 1 << 10
# Eight results of 256 KiB, each the input of the next; then a sum
LONG = """
import gc
from torch import nn

gc.collect()  # free graphs of other tests

def long(x):
    for _ in range(8):
        x = torch.tanh(x * 1.5)
    return x.sum(0)

def values(seed):
    return torch.randn(256, 256, generator=torch.Generator().manual_seed(seed)).to("hpu")

def close(one, two):
    return torch.allclose(one.detach().cpu(), two.detach().cpu(), atol=1e-5)

def held(run):
    # Return the bytes that a call leaves on the device and its peak, including the result.
    before = torch.hpu.memory_allocated()
    torch.hpu.reset_peak_memory_stats()
    result = run()
    torch.hpu.synchronize()
    peak = max(torch.hpu.max_memory_allocated(), before)
    return torch.hpu.memory_allocated() - before, peak - before
"""


def test_wrapped_function_keeps_only_its_outputs(lazy_process):
    same, *lines, moved = lazy_process(
        LONG
        + """
x, new = values(1), values(2)
print(close(long(x), torch.hpu.wrap_in_hpu_graph_func(long, disable_tensor_cache=True)(x)))
for options in ({}, {"disable_tensor_cache": True}):
    graphed = torch.hpu.wrap_in_hpu_graph_func(long, **options)
    left, _ = held(lambda: graphed(x))
    _, peak = held(lambda: graphed(new))
    print(left // 1024, peak // 1024, close(graphed(new), long(new)))
before = torch.hpu.memory_stats()
for _ in range(100):
    graphed(new)
after = torch.hpu.memory_stats()
print(after["InUse"] - before["InUse"], after["MaxInUse"] - before["MaxInUse"])
"""
    )
    assert same == "True"
    # With the cache, a graph keeps its input and sixteen results of 256 KiB, and a replay needs no
    # more. Without the cache, a replay needs the input and two results at the same time.
    assert lines == [f"{17 * 256 + 1} 0 True", "1 768 True"]
    assert moved == "0 0"


def test_freed_intermediate_result_raises_an_explanation(lazy_process):
    message, after = lazy_process(
        LONG
        + """
escaped = []
def leaky(x):
    escaped.append(x * 2)
    return escaped[-1] + 1
graphed = torch.hpu.wrap_in_hpu_graph_func(leaky, disable_tensor_cache=True)
graphed(values(1))
print(error_of(escaped[0].cpu))
print(close(graphed(values(2)), values(2) * 2 + 1))
"""
    )
    assert "freed by the replay that computed it" in message
    assert "Return the tensor from the captured function to keep it." in message
    assert after == "True"


def test_tensors_created_outside_the_graph_keep_written_values(lazy_process):
    assert lazy_process(
        LONG
        + """
cache = torch.empty(4, device="hpu")
def remember(x):
    cache.copy_(x * 2)
    return x + 1
graphed = torch.hpu.wrap_in_hpu_graph_func(remember, disable_tensor_cache=True)
for value in (1.0, 2.0):
    graphed(torch.full((4,), value, device="hpu"))
    print(cache.tolist())
"""
    ) == ["[2.0, 2.0, 2.0, 2.0]", "[4.0, 4.0, 4.0, 4.0]"]


def test_failed_replay_keeps_only_its_outputs(lazy_process):
    assert lazy_process(
        LONG
        + """
rows = torch.zeros(1, dtype=torch.int64, device="hpu")
def pick(x):
    for _ in range(4):
        x = x * 1.5
    return x[rows].sum(0)
graphed = torch.hpu.wrap_in_hpu_graph_func(pick, disable_tensor_cache=True)
graphed(values(1))
before = torch.hpu.memory_allocated()
rows.fill_(999)
new = values(2)
try:
    graphed(new)
except IndexError:
    print((torch.hpu.memory_allocated() - before - new.nbytes) // 1024)
rows.fill_(3)
print(close(graphed(new), new[3] * 1.5**4))
"""
    ) == ["0", "True"]


def test_saved_tensors_are_freed_without_a_backward(lazy_process):
    assert lazy_process(
        LONG
        + """
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)]).to("hpu")
torch.hpu.make_graphed_callables(model, (values(1),), disable_tensor_cache=True)
x = values(2)
def predict():
    with torch.no_grad():
        return model(x)
print(held(predict)[0] // 1024)
"""
    ) == ["256"]


def test_results_in_an_object_are_outputs(lazy_process):
    assert lazy_process(
        LONG
        + """
import dataclasses
@dataclasses.dataclass
class Answer:
    scores: torch.Tensor
    states: list
graphed = torch.hpu.wrap_in_hpu_graph_func(
    lambda x: Answer(x * 2, [x + 1]), disable_tensor_cache=True
)
graphed(values(1))
answer = graphed(values(2))
print(close(answer.scores, values(2) * 2), close(answer.states[0], values(2) + 1))
"""
    ) == ["True True"]


def test_returned_input_is_kept_and_updated(lazy_process):
    assert (
        lazy_process(
            LONG
            + """
def add_to(features):
    features["doubled"] = features["x"] * 2
    return features
graphed = torch.hpu.wrap_in_hpu_graph_func(add_to, disable_tensor_cache=True)
for seed in range(4):
    answer = graphed({"x": values(seed)})
    other = values(5)
    print(close(answer["x"], values(seed)), close(answer["doubled"], values(seed) * 2))
"""
        )
        == ["True True"] * 4
    )


@pytest.mark.parametrize("wrap", ["make_graphed_callables", "ModuleCacher"])
def test_training_frees_tensors_that_only_backward_reads(lazy_process, wrap):
    same, cached, cacheless = lazy_process(
        LONG
        + f"""
import copy
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(6)]
plain = nn.Sequential(*layers, nn.Linear(256, 1)).to("hpu")
models = [copy.deepcopy(plain) for _ in range(2)]

def graphed(model, **options):
    if {wrap!r} == "ModuleCacher":
        return torch.hpu.ModuleCacher()(model, **options)
    return torch.hpu.make_graphed_callables(model, (values(9),), **options)

def step(model, seed):
    model.zero_grad()
    model(values(seed)).sum().backward()
    htcore.mark_step()
    return [each.grad.cpu() for each in model.parameters()]

for model in (plain, *models):
    model.train()
    step(model, 5)
before = torch.hpu.memory_allocated()
used = []
for model, off in zip(models, (False, True)):
    graphed(model, disable_tensor_cache=off)
    gradients = [step(model, seed) for seed in (1, 2, 1)]
    torch.hpu.synchronize()
    used.append(torch.hpu.memory_allocated() - before)
    before = torch.hpu.memory_allocated()
expected = [step(plain, seed) for seed in (1, 2, 1)]
print(all(close(a, b) for one, two in zip(gradients, expected) for a, b in zip(one, two)))
print(*used, sep=chr(10))
"""
    )
    assert same == "True"
    # Six activations of 256 KiB and their gradients are freed after the step.
    assert int(cached) - int(cacheless) >= 6 * 256 * KIB


def test_environment_variable_disables_the_tensor_cache(lazy_process):
    assert lazy_process(
        LONG
        + """
import os
x = values(1)
os.environ["PT_HPUGRAPH_DISABLE_TENSOR_CACHE"] = "1"
try:
    graphed = torch.hpu.wrap_in_hpu_graph_func(long)
finally:
    del os.environ["PT_HPUGRAPH_DISABLE_TENSOR_CACHE"]
print(held(lambda: graphed(x))[0] // 1024)
"""
    ) == ["1"]
