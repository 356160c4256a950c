"""Which operators torch.compile(backend="hpu_backend") puts in the place of others."""

import pytest


@pytest.fixture
def operators(torch):
    """Names of the operators that a call runs, each as often as it runs."""

    def run(function, *inputs):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            function(*inputs)
        return {event.key: event.count for event in profile.key_averages()}

    return run


@pytest.fixture
def fused(torch, operators):
    """Number of products that oneDNN computes in a call."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch is built without oneDNN")
    return lambda function, *inputs: operators(function, *inputs).get(
        "mkldnn::_linear_pointwise", 0
    )


def _randn(torch, *shape, **options):
    torch.manual_seed(sum(shape))
    return torch.randn(shape, device="hpu", **options)


def _linear_cases(torch):
    functional = torch.nn.functional
    x, weight = _randn(torch, 64, 256), _randn(torch, 128, 256)
    bias, total = _randn(torch, 128), _randn(torch, 64, 128)
    return {
        "with bias": (1, lambda: functional.linear(x, weight, bias)),
        "without bias": (1, lambda: functional.linear(x, weight)),
        "with relu": (1, lambda: functional.linear(x, weight, bias).relu()),
        "read before its relu": (1, lambda: (y := functional.linear(x, weight, bias)).relu() + y),
        "product": (1, lambda: x @ weight.t().contiguous()),
        "transposed operands": (1, lambda: weight @ x.t()),
        "of more dimensions": (1, lambda: functional.linear(x.view(4, 16, 256), weight, bias)),
        "one after another": (2, lambda: functional.linear(x, weight).relu() @ weight),
        "scaled sum": (0, lambda: torch.addmm(bias, x, weight.t(), beta=0.5)),
        "sum with a matrix": (0, lambda: torch.addmm(total, x, weight.t())),
        "small": (0, lambda: functional.linear(x[:2], weight, bias)),
        "of another dtype": (0, lambda: functional.linear(x.double(), weight.double())),
    }


@pytest.mark.parametrize(
    "name",
    [
        "with bias",
        "without bias",
        "with relu",
        "read before its relu",
        "product",
        "transposed operands",
        "of more dimensions",
        "one after another",
        "scaled sum",
        "sum with a matrix",
        "small",
        "of another dtype",
    ],
)
def test_large_products_run_in_one_kernel_with_what_follows(torch, compile_on_hpu, fused, name):
    expected_count, function = _linear_cases(torch)[name]
    with torch.no_grad():
        compiled = compile_on_hpu(function, dynamic=False)
        torch.testing.assert_close(compiled(), function(), rtol=1e-4, atol=1e-4)
        assert compiled().stride() == function().stride()
        assert fused(compiled) == expected_count
        assert fused(function) == 0  # eager mode keeps to PyTorch's own kernels


def test_a_relu_after_a_fused_product_is_not_run_again(torch, compile_on_hpu, operators, fused):
    x, weight = _randn(torch, 64, 256), _randn(torch, 128, 256)
    compiled = compile_on_hpu(lambda: torch.nn.functional.linear(x, weight).relu())
    compiled()
    assert fused(compiled) == 1
    ran = operators(compiled)
    assert not {"aten::relu", "aten::relu_", "aten::mm", "aten::addmm"} & set(ran)


def test_gradients_of_large_products_are_those_of_eager_mode(torch, compile_on_hpu, fused):
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 160)
    ).to("hpu")
    x = _randn(torch, 64, 256, requires_grad=True)
    gradients = []
    for run in (model, compile_on_hpu(model)):
        run(x).square().mean().backward()
        gradients.append([each.grad.clone() for each in (x, *model.parameters())])
        x.grad = None
        model.zero_grad()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
    result = run(x).square().mean()
    assert fused(result.backward) == 4  # two a layer


def test_a_relu_overwrites_what_nothing_else_reads(torch, compile_on_hpu, operators):
    compiled = compile_on_hpu(lambda x: (x @ x).relu())
    x = _randn(torch, 8, 8)
    compiled(x)
    assert "aten::relu_" in operators(compiled, x)
    assert torch.equal(compiled(x), (x @ x).relu())
