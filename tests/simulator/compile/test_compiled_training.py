"""Test gradients through torch.compile(backend="hpu_backend")."""

import gc

import pytest


def _layer(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4), torch.nn.Tanh()
    ).to("hpu")


def _is_one_node(result):
    """Return whether the engine's node, not a Python node, differentiates this result."""
    return "DifferentiableProgram" in result.grad_fn.name()


@pytest.fixture
def gradients(torch, compile_on_hpu):
    """Return the gradients of a function's inputs in eager mode and compiled."""

    def both(function, back, *inputs):
        results = []
        for run in (function, compile_on_hpu(function)):
            leaves = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
            back(run(*leaves))
            results.append([leaf.grad for leaf in leaves])
        return results

    return both


def test_compiled_graph_is_one_autograd_node(torch, compile_on_hpu):
    x = torch.randn(3, 6, device="hpu")
    result = compile_on_hpu(_layer(torch))(x)
    assert _is_one_node(result)
    assert {edge.name() for edge, _ in result.grad_fn.next_functions if edge} == {
        "torch::autograd::AccumulateGrad"
    }


def test_backward_is_compiled_on_first_use(torch, compile_on_hpu, compilations):
    run = compile_on_hpu(_layer(torch))
    x = torch.randn(3, 6, device="hpu")
    run(x)
    result = run(x)
    assert compilations() == 1
    result.sum().backward()
    run(x).sum().backward()
    assert compilations() == 2


@pytest.mark.parametrize(
    "back",
    [
        lambda result: result.sum().backward(),
        lambda result: result.t().contiguous().square().sum().backward(),
        lambda result: (result.t() @ result).mean().backward(),
        lambda result: result[::2].square().sum().backward(),
    ],
    ids=["expanded", "transposed", "twice used", "strided"],
)
def test_gradients_with_any_strides_match_eager_mode(torch, gradients, back):
    def function(x, weight):
        return (x @ weight).view(-1, 2, 2).sin().view(-1, 4)

    x = torch.randn(6, 3, device="hpu", requires_grad=True)
    weight = torch.randn(3, 4, device="hpu", requires_grad=True)
    eager, compiled = gradients(function, back, x, weight)
    torch.testing.assert_close(compiled, eager)


def test_results_without_gradient_and_unused_results_are_supported(torch, gradients):
    def function(x, y):
        product = x * y
        return product.argmax(), product.detach() + 1, product.exp(), product.cos()

    def back(results):
        index, constant, used, _ = results
        assert not index.requires_grad
        assert not constant.requires_grad
        used.sum().backward()

    x = torch.randn(5, device="hpu", requires_grad=True)
    y = torch.randn(5, device="hpu")
    eager, compiled = gradients(function, back, x, y)
    torch.testing.assert_close(compiled, eager)
    assert compiled[1] is None


@pytest.mark.parametrize("view", [False, True])
def test_result_that_backward_reads_must_not_be_modified(torch, compile_on_hpu, view):
    x = torch.randn(6, device="hpu", requires_grad=True)
    run = compile_on_hpu(lambda x: x.exp().view(2, 3) if view else x.exp())
    result = run(x)
    assert _is_one_node(result) or view
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())
    changed = run(x)
    with torch.no_grad():
        changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        changed.sum().backward()


def test_input_that_backward_reads_must_not_be_modified(torch, compile_on_hpu):
    x = torch.randn(5, device="hpu", requires_grad=True)
    scale = torch.randn(5, device="hpu")
    result = compile_on_hpu(lambda x, scale: x * scale)(x, scale)
    scale.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_saved_tensor_hooks_are_called(torch, compile_on_hpu):
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.cpu()

    x = torch.randn(5, device="hpu", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to("hpu")):
        result = compile_on_hpu(lambda x: x.sin())(x)
    result.sum().backward()
    assert packed == [(5,)]
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_autocast_around_backward_does_not_affect_compiled_operators(torch, gradients):
    def function(x, weight):
        with torch.autocast("hpu", dtype=torch.bfloat16):
            return x @ weight

    def back(result):
        assert result.dtype == torch.bfloat16
        with torch.autocast("hpu", dtype=torch.bfloat16):
            result.sum().backward()

    x = torch.randn(4, 4, device="hpu", requires_grad=True)
    weight = torch.randn(4, 4, device="hpu", requires_grad=True)
    eager, compiled = gradients(function, back, x, weight)
    torch.testing.assert_close(compiled, eager)
    assert compiled[0].dtype == torch.float32


def test_views_of_inputs_and_written_inputs_have_correct_gradients(torch, compile_on_hpu):
    def function(x, total):
        total.add_(x.detach())
        return x.view(-1)[1:], x * total

    x = torch.randn(2, 3, device="hpu", requires_grad=True)
    total = torch.zeros(2, 3, device="hpu")
    view, product = compile_on_hpu(function)(x, total)
    assert view._is_view()
    assert torch.equal(total, x)
    (view.sum() + product.sum()).backward()
    expected = x.detach() + torch.tensor([[0, 1, 1], [1, 1, 1]], device="hpu")
    torch.testing.assert_close(x.grad, expected)


def test_results_may_be_modified_in_place_like_in_eager_mode(torch, compile_on_hpu):
    linear = torch.nn.Linear(4, 4).to("hpu")  # with three dimensions, a view of a product
    run = compile_on_hpu(linear)
    x = torch.randn(2, 3, 4, device="hpu")
    gradients = []
    for function in (linear, run):
        result = function(x)
        result += x
        result.relu_().sum().backward()
        gradients.append(linear.weight.grad.clone())
        linear.zero_grad()
    assert _is_one_node(run(x))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_input_without_a_gradient_gets_none_instead_of_zeros(torch, compile_on_hpu):
    first = compile_on_hpu(lambda z: z.sin())
    second = compile_on_hpu(lambda x, z: x.sin() + z.detach())
    x = torch.randn(5, device="hpu", requires_grad=True)
    z = torch.randn(5, device="hpu", requires_grad=True)
    result = second(x, first(z))
    assert _is_one_node(result)
    result.sum().backward()
    assert z.grad is None


def test_results_without_gradient_need_no_memory_in_backward(torch, compile_on_hpu):
    run = compile_on_hpu(lambda x: (x.sin().sum(), (x * 2).long()))
    x = torch.randn(1 << 18, device="hpu", requires_grad=True)
    peaks = []
    for _ in range(2):
        x.grad = None
        loss, numbers = run(x)
        before = torch.hpu.memory_allocated()
        torch.hpu.reset_peak_memory_stats()
        loss.backward()
        peaks.append(torch.hpu.max_memory_allocated() - before)
    assert peaks[1] < numbers.nbytes + 2 * x.nbytes


def test_backend_compiles_a_graph_of_symbolic_trace(torch):
    from habana_frameworks.torch.dynamo.compile_backend.backends import hpu_backend

    class Square(torch.nn.Module):
        def forward(self, x):
            return (x.sin() * x,)

    x = torch.randn(5, device="hpu", requires_grad=True)
    (result,) = hpu_backend(torch.fx.symbolic_trace(Square()), [x])(x)
    torch.testing.assert_close(result, x.sin() * x)


def test_compiled_autograd_gives_the_gradients_of_eager_mode(torch, compile_on_hpu, needs):
    needs("COMPILED_AUTOGRAD")
    layer = _layer(torch)
    x = torch.randn(3, 6, device="hpu")
    with torch._dynamo.config.patch(compiled_autograd=True):
        compile_on_hpu(lambda x: layer(x).sum().backward())(x)
    compiled = layer[0].weight.grad.clone()
    layer.zero_grad()
    layer(x).sum().backward()
    torch.testing.assert_close(compiled, layer[0].weight.grad)


def test_training_step_needs_no_more_memory_than_in_eager_mode(torch, compile_on_hpu):
    layers = [
        torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Tanh(), torch.nn.Sigmoid())
        for _ in range(4)
    ]
    model = torch.nn.Sequential(*layers).to("hpu")
    x = torch.randn(1024, 128, device="hpu")
    peaks = []
    for run in (model, compile_on_hpu(model)):
        for _ in range(2):
            model.zero_grad(set_to_none=True)
            gc.collect()
            before = torch.hpu.memory_allocated()
            torch.hpu.reset_peak_memory_stats()
            run(x).mean().backward()
            peak = torch.hpu.max_memory_allocated() - before
        peaks.append(peak)
    assert peaks[1] <= peaks[0]


def test_finished_steps_keep_no_memory(torch, compile_on_hpu):
    run = compile_on_hpu(_layer(torch))
    x = torch.randn(64, 6, device="hpu", requires_grad=True)
    run(x).sum().backward()
    x.grad = None
    gc.collect()
    before = torch.hpu.memory_allocated()
    for _ in range(3):
        run(x)  # without a backward, saved tensors are freed with the result
        torch.autograd.grad(run(x).sum(), x)
    assert torch.hpu.memory_allocated() == before


def test_graphs_with_constants_run_as_programs(torch, compile_on_hpu, monkeypatch):
    from habana_frameworks.torch.dynamo.compile_backend import backends

    def refuse(graph):
        raise AssertionError(f"{graph} runs in Python")

    monkeypatch.setattr(backends, "_generated", refuse)

    def scaled(x):
        scale = torch.tensor([2.0, 3.0], device=x.device)
        return torch.cat([torch.tensor([], device=x.device), (x * scale).square()]).sum()

    compiled = compile_on_hpu(scaled)
    x = torch.ones(2, device="hpu", requires_grad=True)
    for times in (1, 2):
        result = compiled(x)
        result.backward()
        assert (result.item(), x.grad.tolist()) == (13.0, [8.0 * times, 18.0 * times])
    with torch.no_grad():
        assert [compiled(x).item() for _ in range(2)] == [13.0, 13.0]
