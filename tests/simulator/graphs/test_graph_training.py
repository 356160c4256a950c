"""Test HPU Graphs in training: graphed callables, ModuleCacher and step closures."""

import pytest
from lazy_process import MODEL, SCALE


def test_graphed_training_equals_plain_training(lazy_process):
    lines = lazy_process(
        MODEL
        + """
sample = (torch.randn(4, 8, device="hpu", requires_grad=True),)
graphed = torch.hpu.make_graphed_callables(other, sample, warmups=2)
steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, graphed)]
for step in range(4):
    x = torch.randn(4, 8, device="hpu")
    inputs = [x.clone().requires_grad_() for _ in steps]
    for model, leaf, optimizer in zip((plain, graphed), inputs, steps):
        for _ in range(1 + step % 2):  # gradients accumulate in every second step
            (model(leaf) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        htcore.mark_step()
print(all(same(*pair) for pair in zip(plain.parameters(), graphed.parameters())))
graphed.eval()
print(same(graphed(torch.ones(9, 8, device="hpu")), plain(torch.ones(9, 8, device="hpu"))))
"""
    )
    assert lines == ["True", "True"]


def test_unused_inputs_are_rejected_unless_allowed(lazy_process):
    lines = lazy_process(
        SCALE
        + """
def triple(used, unused):
    return used * 3

def sample():
    return tuple(torch.ones(2, device="hpu", requires_grad=True) for _ in range(2))

def graphed(allowed):
    used, unused = sample()
    options = dict(allow_unused_input=allowed)
    function = torch.hpu.make_graphed_callables(triple, sample(), **options)
    function(used, unused).sum().backward()
    print(used.grad.tolist(), unused.grad)

def cached(allowed):
    scale = Scale()
    scale.unused = torch.nn.Parameter(torch.ones(1, device="hpu"))
    model = torch.hpu.ModuleCacher()(scale, allow_unused_input=allowed)
    model(torch.ones(2, device="hpu")).sum().backward()
    print(model.weight.grad.tolist(), model.unused.grad)

for train in (graphed, cached):
    print(error_of(train, False))
    print(torch.hpu.is_current_stream_capturing())
    train(True)
"""
    )
    message = (
        "1 of the 2 inputs and parameters that require a gradient do not affect the outputs; "
        "pass allow_unused_input=True if this is intended, or freeze them with "
        "requires_grad_(False)."
    )
    assert lines == [message, "False", "[3.0, 3.0] None", message, "False", "[2.0] None"]


def test_unsuitable_callable_is_rejected(lazy_process):
    lines = lazy_process(
        MODEL
        + """
def try_to_graph(callable, sample):
    try:
        torch.hpu.make_graphed_callables(callable, sample)
    except AssertionError as error:
        print(error)

try_to_graph(plain, [torch.ones(4, 8)])
try_to_graph(plain, (3,))
plain.register_forward_hook(lambda *_: None)
try_to_graph(plain, (torch.ones(4, 8, device="hpu"),))
other.register_buffer("scale", torch.ones(1, device="hpu", requires_grad=True))
try_to_graph(other, (torch.ones(4, 8, device="hpu"),))
"""
    )
    assert [line.split(";")[0] for line in lines] == [
        "sample_args must be a tuple of tensors for each callable",
        "sample_args must be a tuple of tensors for each callable",
        "Sequential has hooks",
        "A buffer of Sequential requires a gradient",
    ]


def test_module_cacher_trains_like_the_plain_model_and_evicts_the_least_used_graph(lazy_process):
    lines = lazy_process(
        MODEL
        + """
cached = torch.hpu.ModuleCacher(max_graphs=2)(other, use_lfu=True, verbose=True, log_frequency=8)
steps = [torch.optim.Adam(model.parameters()) for model in (plain, cached)]
for rows in (3, 4, 3, 4, 3, 5, 3, 5):
    x = torch.randn(rows, 8, device="hpu")
    for model, optimizer in zip((plain, cached), steps):
        (model(x) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print(all(same(*pair) for pair in zip(plain.parameters(), cached.parameters())))
cached.eval()
print(same(cached(x), plain(x)))
"""
    )
    assert lines == [
        "HPU Graphs of Sequential: 8 calls, 5 replayed, 3 captured, 0 run without a graph",
        "True",
        "True",
    ]


def test_module_cacher_captures_only_between_capture_start_and_end(lazy_process):
    lines = lazy_process(
        SCALE
        + """
model = torch.hpu.ModuleCacher()(Scale())

def run(*sizes):
    calls.clear()
    results = [model(torch.ones(size, device="hpu")).tolist() for size in sizes]
    print(calls, results == [[3.0] * size for size in sizes], model.is_hpugraph_tracing())

run(1, 1)
model.capture_end()
run(1, 2, 2)
model.capture_start()
run(1, 2, 2)
"""
    )
    assert lines == ["[1] True True", "[2, 2] True False", "[2] True True"]


def test_module_cacher_runs_inputs_without_a_key_without_a_graph(lazy_process):
    lines = lazy_process(
        """
import types, warnings

class Scaled(torch.nn.Linear):
    def forward(self, x, options):
        return super().forward(x) * options["by"]

model = torch.hpu.ModuleCacher()(Scaled(1, 1).to("hpu"))
torch.nn.init.ones_(model.weight), torch.nn.init.zeros_(model.bias)
x = torch.ones(1, 1, device="hpu")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for by in (2.0, 3.0):
        model.zero_grad()
        output = model(x, types.MappingProxyType({"by": by}))
        output.backward()
        print(output.item(), model.weight.grad.item())
print([str(each.message) for each in caught])
"""
    )
    assert lines == [
        *("2.0 2.0", "3.0 3.0"),
        '["Scaled does not use HPU Graphs for some inputs because a mappingproxy cannot be '
        "compared by value (cannot pickle 'mappingproxy' object); pass tensors, plain values, or "
        'containers of them."]',
    ]


def test_module_cacher_runs_each_batch_once(lazy_process):
    lines = lazy_process(
        """
        import copy
        from torch import nn
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)).to("hpu")
        cached = torch.hpu.ModuleCacher()(copy.deepcopy(plain), inplace=False)
        for _ in range(3):
            x = torch.randn(8, 4, device="hpu")
            outputs = []
            for model in (plain, cached):
                torch.manual_seed(1)
                outputs.append(model(x).tolist())
            print(outputs[0] == outputs[1])
        print([model[1].num_batches_tracked.item() for model in (plain, cached)])
        """
    )
    assert lines == ["True", "True", "True", "[3, 3]"]


def test_backward_after_a_later_forward_is_rejected(lazy_process):
    (line,) = lazy_process(
        MODEL
        + """
cached = torch.hpu.ModuleCacher()(other)
x = torch.ones(3, 8, device="hpu")
first, second = cached(x).sum(), cached(x).sum()
second.backward()
print(error_of(first.backward))
"""
    )
    assert "call backward() before the next forward" in line


def test_gradients_accumulate_and_are_not_overwritten_by_later_replays(lazy_process):
    same, kept = lazy_process(
        MODEL
        + """
torch.hpu.ModuleCacher()(other)
sums = []
for model in (plain, other):
    x = torch.ones(2, 8, device="hpu", requires_grad=True)
    for factor in (1.0, 3.0):
        (model(x) * factor).sum().backward()
    sums.append((x.grad, model[0].weight.grad))
print(all(torch.allclose(one.cpu(), two.cpu()) for one, two in zip(*sums)))
kept = []
for factor in (1.0, 3.0):
    other.zero_grad(set_to_none=True)
    (other(torch.ones(2, 8, device="hpu")) * factor).sum().backward()
    kept.append(other[2].bias.grad)
print([each[0].item() for each in kept])
"""
    )
    assert (same, kept) == ("True", "[2.0, 6.0]")


def test_freezing_another_parameter_captures_another_graph(lazy_process):
    assert lazy_process(
        """
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Parameter(torch.tensor([2.0]))
                self.b = torch.nn.Parameter(torch.tensor([5.0]))
            def forward(self, x):
                return x * self.a + 3 * self.b
        model = torch.hpu.ModuleCacher()(Two().to("hpu"))
        for frozen, free in ((model.b, model.a), (model.a, model.b)):
            frozen.requires_grad_(False)
            free.requires_grad_(True)
            model(torch.full((1,), 10.0, device="hpu")).sum().backward()
            print(free.grad.tolist())
        """
    ) == ["[10.0]", "[3.0]"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "model = torch.hpu.ModuleCacher(max_graphs=1)(other, use_lfu=True)\n"
            "y = model(x).sum()\nmodel(x[:1])",
            "was freed to make room for one with other inputs; call backward() before the next",
        ),
        (
            "model = torch.hpu.ModuleCacher()(other, disable_tensor_cache=True)\n"
            "y = model(x).sum()\ny.backward(retain_graph=True)",
            "backward() has already run for this output and, with disable_tensor_cache=True, has",
        ),
    ],
)
def test_backward_without_its_intermediate_results_is_rejected(lazy_process, code, message):
    (line,) = lazy_process(
        MODEL
        + f"""
x = torch.ones(4, 8, device="hpu")
{code}
print(error_of(y.backward))
"""
    )
    assert message in line


def test_module_cacher_needs_named_arguments(lazy_process):
    (line,) = lazy_process(
        """
        class Model(torch.nn.Module):
            def forward(self, *parts):
                return parts[0]
        print(error_of(torch.hpu.ModuleCacher(), Model()))
        """
    )
    assert line.startswith("Model.forward has the argument *parts, which cannot be passed by name")


def test_step_closures_run_once_after_the_next_mark_step(lazy_process):
    assert lazy_process(
        """
        x = torch.zeros(1, device="hpu")
        htcore.add_step_closure(lambda text: print(text, x.item()), ("then",))
        htcore.add_step_closure(lambda: 1 / 0)
        htcore.add_step_closure(print, ("last",))
        x += 1
        print("before")
        htcore.mark_step()
        htcore.mark_step()
        """
    ) == ["before", "then 1.0", "last"]


def test_failed_step_closure_is_logged_with_its_name_and_traceback(lazy_process):
    first, *traceback, last = lazy_process(
        """
        import io, logging
        text = io.StringIO()
        handler = logging.StreamHandler(text)
        logger = logging.getLogger("habana_frameworks.torch")
        logger.addHandler(handler)
        def report(loss):
            raise ValueError(f"the loss is {loss}")
        htcore.add_step_closure(report, (7,))
        htcore.mark_step()
        logger.removeHandler(handler)
        print(text.getvalue().strip())
        """
    )
    assert first == "The step closure report failed"
    assert any('"cell.py", line 8, in report' in line for line in traceback)
    assert last == "ValueError: the loss is 7"


def test_module_cacher_does_not_change_the_model_in_eager_mode(torch):
    model = torch.nn.Linear(2, 1).to("hpu")
    x = torch.ones(3, 2, device="hpu")
    expected = model(x)
    assert torch.equal(torch.hpu.ModuleCacher()(model)(x), expected)


def test_second_derivatives_of_a_captured_graph_are_rejected(lazy_process):
    lines = lazy_process(
        MODEL
        + """
def sample():
    return torch.ones(4, 8, device="hpu", requires_grad=True)

class Cached(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)

graphed = torch.hpu.make_graphed_callables(copy.deepcopy(plain), (sample(),))
cached = torch.hpu.ModuleCacher(max_graphs=2)(Cached(plain))
for model in (graphed, cached):
    weights = list(model.parameters())
    for differentiate in (
        lambda total: total.backward(),
        lambda total: total.backward(inputs=weights),
        lambda total: torch.autograd.grad(total, weights),
    ):
        x = sample()
        value = model(x).sum()
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        print(error_of(differentiate, value + gradient.square().sum()))
"""
    )
    assert len(lines) == 6
    refusal = "A captured graph supports only first derivatives"
    assert all(line.startswith(refusal) for line in lines)
