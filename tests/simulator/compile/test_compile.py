"""Test torch.compile(backend="hpu_backend") in eager mode."""

import pytest


def _models(torch):
    nn = torch.nn
    return {
        "mlp": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), (4, 8)),
        "cnn": (
            nn.Sequential(
                nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
            ),
            (4, 1, 8, 8),
        ),
        "transformer": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (4, 5, 16)),
    }


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_compiled_training_matches_eager_mode(torch, compile_on_hpu, compilations, name):
    losses = []
    for wrap in (lambda model: model, compile_on_hpu):
        torch.manual_seed(0)
        model, shape = _models(torch)[name]
        model.to("hpu")
        optimizer = torch.optim.AdamW(model.parameters())
        step, run = torch.randn(shape, device="hpu"), wrap(model)
        torch.manual_seed(1)
        for _ in range(3):
            loss = run(step).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    torch.testing.assert_close(losses[:3], losses[3:], rtol=1e-6, atol=0)
    assert compilations() == 2  # forward and backward


def test_compiled_inference_gives_the_results_of_eager_mode(torch, compile_on_hpu, compilations):
    model, shape = _models(torch)["mlp"]
    model.to("hpu").eval()
    x = torch.randn(shape, device="hpu")
    with torch.no_grad():
        compiled = compile_on_hpu(model)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))
    assert compiled(x).device.type == "hpu"
    assert compilations() == 2  # with and without gradients


def test_each_static_shape_is_compiled_once(torch, compile_on_hpu, compilations):
    double = compile_on_hpu(lambda x: x * 2 + 1, dynamic=False)
    for rows in (2, 3, 2, 3):
        assert double(torch.ones(rows, device="hpu")).tolist() == [3.0] * rows
    assert compilations() == 2


def test_compiled_function_converts_types(torch, compile_on_hpu):
    convert = compile_on_hpu(lambda x: x.type(torch.int32) + 1, fullgraph=True)
    assert convert(torch.tensor([1.5], device="hpu")).type() == "torch.hpu.IntTensor"


def test_dynamic_shape_is_compiled_once(torch, compile_on_hpu, compilations):
    double = compile_on_hpu(lambda x: x * 2 + 1, dynamic=True)
    for rows in (2, 3, 4):
        assert double(torch.ones(rows, device="hpu")).tolist() == [3.0] * rows
    assert compilations() == 1


def test_compilation_event_contains_the_shapes(torch, compile_on_hpu):
    from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId

    dispatcher = EventDispatcher.instance()
    handle = dispatcher.subscribe(EventId.GRAPH_COMPILATION)
    compile_on_hpu(lambda x: x.relu(), dynamic=False)(torch.ones(3, 5, device="hpu"))
    seen = []
    dispatcher.process(handle, lambda _, pairs: seen.append(dict(pairs)))
    dispatcher.unsubscribe(handle)
    (event,) = seen
    assert event["shapes"] == "[3, 5]"
    assert float(event["duration"]) > 0


def test_graph_break_is_reported_and_runs_eagerly(torch, compile_on_hpu, compilations):
    def with_break(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    assert compile_on_hpu(with_break)(torch.ones(2, device="hpu")).tolist() == [4.0, 4.0]
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) == 1
    assert compilations() == 2


def test_compiled_function_writes_its_inputs(torch, compile_on_hpu):
    def accumulate(total, x):
        total += x
        return total * 2

    total = torch.zeros(2, device="hpu")
    compiled = compile_on_hpu(accumulate)
    compiled(total, torch.ones(2, device="hpu"))
    assert compiled(total, torch.ones(2, device="hpu")).tolist() == [4.0, 4.0]
    assert total.tolist() == [2.0, 2.0]


def test_value_that_is_read_later_is_not_overwritten(torch, compile_on_hpu):
    def reuse(x):
        product = x @ x
        return product + 1, product * 2, (product + 2) * 3

    x = torch.eye(2, device="hpu")
    for actual, expected in zip(compile_on_hpu(reuse)(x), reuse(x), strict=True):
        assert torch.equal(actual, expected)


def test_operands_may_be_lists_indices_and_numbers(torch, compile_on_hpu):
    def mixed(x, rows):
        left, right = x.split(x.shape[1] // 2, dim=1)
        values, order = (torch.cat([right, left + 1], dim=1) - 2).max(dim=0)
        picked = x[:, rows]
        return (
            values.reshape(-1, 2).float(),
            order,
            picked,
            torch.stack([left, right]).to(torch.int8),
        )

    compiled = compile_on_hpu(mixed, dynamic=True)
    rows = torch.tensor([2, 0], device="hpu")
    for height in (3, 5):
        x = torch.randn(height, 4, device="hpu")
        for actual, expected in zip(compiled(x, rows), mixed(x, rows), strict=True):
            assert actual.device.type == "hpu"
            assert actual.dtype == expected.dtype
            assert torch.equal(actual, expected)


def test_higher_order_operators_are_supported(torch, compile_on_hpu):
    def choose(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled = compile_on_hpu(choose)
    assert compiled(torch.ones(2, device="hpu")).tolist() == [2.0, 2.0]
    assert compiled(-torch.ones(2, device="hpu")).tolist() == [-2.0, -2.0]


def test_operator_error_is_the_same_as_in_eager_mode(torch, compile_on_hpu):
    x, index = torch.ones(3, 2, device="hpu"), torch.tensor([7], device="hpu")
    compiled = compile_on_hpu(lambda x, index: x[index] * 2)
    with pytest.raises(IndexError) as eager:
        x[index]
    with pytest.raises(IndexError) as error:
        compiled(x, index)
    assert str(error.value) == str(eager.value)
    assert compiled(x, torch.tensor([1], device="hpu")).tolist() == [[2.0, 2.0]]


def test_values_are_freed_after_their_last_use(torch, compile_on_hpu):
    def chain(x):
        for _ in range(6):
            x = (x @ x).tanh()
        return x

    peaks = []
    x = torch.randn(128, 128, device="hpu")
    for run in (chain, compile_on_hpu(chain)):
        run(x)
        torch.hpu.reset_peak_memory_stats()
        run(x)
        peaks.append(torch.hpu.max_memory_allocated() - torch.hpu.memory_allocated())
    assert peaks[1] <= peaks[0]


def test_written_inputs_have_a_new_version(torch, compile_on_hpu):
    x = torch.ones(2, device="hpu", requires_grad=True)
    scale = torch.ones(2, device="hpu")
    product = x * scale
    compile_on_hpu(lambda scale: scale.add_(1))(scale)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_compiled_dropout_uses_the_mask_of_eager_mode(torch, compile_on_hpu):
    dropout = torch.nn.functional.dropout
    compiled = compile_on_hpu(lambda x, p: dropout(x, p))
    for x in (torch.ones(64, 32, device="hpu"), torch.ones(32, 64, device="hpu").t()):
        for p in (0.0, 0.3, 1.0):
            torch.manual_seed(0)
            expected = dropout(x, p)
            torch.manual_seed(0)
            assert torch.equal(compiled(x, p), expected)


def test_autocast_may_be_inside_a_compiled_function(torch, compile_on_hpu):
    def product(x):
        with torch.autocast("hpu", dtype=torch.bfloat16):
            return x @ x

    assert compile_on_hpu(product)(torch.eye(2, device="hpu")).dtype == torch.bfloat16


def test_graph_reuses_freed_memory(torch, compile_on_hpu):
    run = compile_on_hpu(lambda x: x.sin() + 1)
    x = torch.ones(1 << 16, device="hpu")
    before = torch.hpu.memory_allocated()
    addresses = {run(x).data_ptr() for _ in range(10)}
    assert len(addresses) <= 2  # the result and the sine
    assert torch.hpu.memory_allocated() == before
    kept = [run(x) for _ in range(5)]
    assert len({result.data_ptr() for result in kept}) == 5
    assert all(torch.equal(result, kept[0]) for result in kept)
