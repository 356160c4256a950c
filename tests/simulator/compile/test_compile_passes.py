"""Which operators torch.compile(backend="hpu_backend") puts in the place of others."""

import json

import pytest

FORMS = {"linear", "plain", "left transposed"}


@pytest.fixture
def operators(torch):
    """Names of the operators that a call runs, each as often as it runs."""

    def run(function, *inputs):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            function(*inputs)
        return {event.key: event.count for event in profile.key_averages()}

    return run


@pytest.fixture
def products(torch, tmp_path, monkeypatch):
    """What decides who computes products, with nothing measured so far and an empty cache."""
    from habana_frameworks.torch.dynamo.compile_backend import products

    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path))
    monkeypatch.setattr(products, "_measured", {})
    return products


@pytest.fixture
def measured(products, tmp_path):
    """Let the cache say how long oneDNN takes for each form of product, by PyTorch's own time."""

    def write(**ratios):
        entry = {form: ratios[form.partition(" ")[0]] for form in FORMS}
        (tmp_path / products.FILE).write_text(json.dumps({products._key(): entry}))

    return write


@pytest.fixture
def by_onednn(torch, operators, measured):
    """Number of products that oneDNN computes in a call, where it is the faster one."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch is built without oneDNN")
    measured(linear=0.5, plain=0.5, left=0.5)
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
        "every second of a bias": (
            0,
            lambda: functional.linear(x, weight, total[0].repeat(2)[::2]),
        ),
        "one bias for all": (0, lambda: functional.linear(x, weight, bias[:1].expand(128))),
        "product": (1, lambda: x @ weight.t().contiguous()),
        "transposed operands": (1, lambda: weight @ x.t()),
        "of more dimensions": (1, lambda: functional.linear(x.view(4, 16, 256), weight, bias)),
        "one after another": (2, lambda: functional.gelu(functional.linear(x, weight)) @ weight),
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
        "every second of a bias",
        "one bias for all",
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
def test_onednn_computes_large_products(torch, compile_on_hpu, by_onednn, name):
    expected_count, function = _linear_cases(torch)[name]
    with torch.no_grad():
        compiled = compile_on_hpu(function, dynamic=False)
        torch.testing.assert_close(compiled(), function(), rtol=1e-4, atol=1e-4)
        assert compiled().stride() == function().stride()
        assert by_onednn(compiled) == expected_count
        assert by_onednn(function) == 0  # eager mode keeps to PyTorch's own kernels


def test_a_relu_after_a_large_product_overwrites_it_and_keeps_what_is_no_number(
    torch, compile_on_hpu, operators, by_onednn
):
    x, weight = _randn(torch, 64, 256), _randn(torch, 128, 256)
    x[0, 0] = torch.nan
    compiled = compile_on_hpu(lambda: torch.nn.functional.linear(x, weight).relu())
    assert compiled()[0].isnan().all()
    assert by_onednn(compiled) == 1
    assert "aten::relu_" in operators(compiled)


def test_no_product_goes_to_onednn_where_it_is_switched_off(torch, compile_on_hpu, by_onednn):
    x = _randn(torch, 128, 128)
    compiled = compile_on_hpu(lambda: x @ x)
    with torch.backends.mkldnn.flags(enabled=False):
        compiled()
    assert by_onednn(compiled) == 0


def test_gradients_of_large_products_are_those_of_eager_mode(torch, compile_on_hpu, by_onednn):
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
    assert "DifferentiableProgram" in run(x).grad_fn.name()
    assert by_onednn(result.backward) == 4  # two a layer


def test_a_relu_overwrites_what_nothing_else_reads(torch, compile_on_hpu, operators):
    compiled = compile_on_hpu(lambda x: (x @ x).relu())
    x = _randn(torch, 8, 8)
    compiled(x)
    assert "aten::relu_" in operators(compiled, x)
    assert torch.equal(compiled(x), (x @ x).relu())


def _forward_and_backward(torch, compile_on_hpu):
    x = _randn(torch, 64, 256, requires_grad=True)
    weight = _randn(torch, 128, 256, requires_grad=True)
    compiled = compile_on_hpu(torch.nn.functional.linear, dynamic=False)

    def step():
        compiled(x, weight).square().sum().backward()

    step()
    return step


@pytest.mark.parametrize(
    ("ratios", "count"),
    [
        ({"linear": 0.5, "plain": 0.5, "left": 0.5}, 3),
        ({"linear": 0.5, "plain": 1.2, "left": 1.2}, 1),
        ({"linear": 1.2, "plain": 0.5, "left": 1.2}, 1),
        ({"linear": 1.2, "plain": 1.2, "left": 0.5}, 1),
        ({"linear": 0.99, "plain": 0.99, "left": 0.99}, 0),
    ],
)
def test_each_form_of_product_goes_to_the_library_that_was_faster(
    torch, compile_on_hpu, by_onednn, measured, ratios, count
):
    measured(**ratios)
    assert by_onednn(_forward_and_backward(torch, compile_on_hpu)) == count


def test_what_was_measured_is_kept_for_the_next_process(products, tmp_path, monkeypatch):
    halves = {"linear": (0.5, 0.6), "plain": (1.2, 1.1), "left transposed": (0.9, 0.94)}
    monkeypatch.setattr(products, "_measure", lambda: halves)
    (tmp_path / products.FILE).write_text('{"another processor": {"linear": 1}}')
    first = [products.is_faster_by_onednn(form) for form in halves]
    assert first == [True, False, True]
    monkeypatch.setattr(products, "_measured", {})
    monkeypatch.setattr(products, "_measure", lambda: pytest.fail("measured again"))
    assert [products.is_faster_by_onednn(form) for form in halves] == first
    kept = json.loads((tmp_path / products.FILE).read_text())
    assert kept == {
        "another processor": {"linear": 1},
        products._key(): {"linear": 0.6, "plain": 1.2, "left transposed": 0.94},
    }
    assert [each.name for each in tmp_path.iterdir()] == [products.FILE]


def test_a_measurement_that_contradicts_itself_is_not_kept(products, tmp_path, monkeypatch):
    halves = {"linear": (0.5, 1.6), "plain": (0.5, 0.5), "left transposed": (1.2, 1.2)}
    monkeypatch.setattr(products, "_measure", lambda: halves)
    assert [products.is_faster_by_onednn(form) for form in halves] == [False, True, False]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "[]", "not JSON", '{"KEY": {"linear": "fast"}}'])
def test_a_spoilt_or_unwritable_cache_is_measured_past(products, tmp_path, monkeypatch, content):
    (tmp_path / products.FILE).write_text(content.replace("KEY", products._key()))
    monkeypatch.setattr(products, "_measure", lambda: dict.fromkeys(FORMS, (0.5, 0.5)))
    assert products.is_faster_by_onednn("plain")
    monkeypatch.setattr(products, "_measured", {})
    monkeypatch.setenv("HPU_MAGIC_CACHE", str(tmp_path / products.FILE / "below a file"))
    assert products.is_faster_by_onednn("plain")


def test_the_key_tells_threads_and_emulated_processors_apart(torch, products, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    plain = products._key()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    emulated = products._key()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    assert len({plain, emulated, products._key()}) == 3
    assert torch.__version__ in plain


def test_both_libraries_are_measured_within_a_compilation(torch, products, compile_on_hpu):
    weight = _randn(torch, 128, 256)
    with torch.no_grad(), torch.autocast("cpu"):
        compile_on_hpu(lambda x: x @ weight.t())(_randn(torch, 64, 256))
    [ratios] = products._measured.values()
    assert set(ratios) == FORMS
    assert all(0.01 < ratio < 100 for ratio in ratios.values())
