"""Test operators that torch.compile(backend="hpu_backend") replaces."""

import pytest


@pytest.fixture
def operators(torch):
    """Return a function that counts the operators of a call by name."""

    def run(function, *inputs):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            function(*inputs)
        return {event.key: event.count for event in profile.key_averages()}

    return run


def _randn(torch, *shape, **options):
    torch.manual_seed(sum(shape))
    return torch.randn(shape, device="hpu", **options)


def test_relu_is_in_place_if_its_input_has_no_other_readers(torch, compile_on_hpu, operators):
    compiled = compile_on_hpu(lambda x: (x @ x).relu())
    x = _randn(torch, 8, 8)
    compiled(x)
    assert "aten::relu_" in operators(compiled, x)
    assert torch.equal(compiled(x), (x @ x).relu())


def test_relu_after_a_linear_layer_keeps_nan(torch, compile_on_hpu, operators):
    x, weight = _randn(torch, 64, 256), _randn(torch, 128, 256)
    x[0, 0] = torch.nan
    compiled = compile_on_hpu(lambda: torch.nn.functional.linear(x, weight).relu())
    assert compiled()[0].isnan().all()
    assert "aten::relu_" in operators(compiled)


@pytest.mark.parametrize("reads", [False, True], ids=["written", "also read before"])
def test_rows_are_written_to_a_cache_without_copying_it(torch, compile_on_hpu, operators, reads):
    def insert(cache, index, rows):
        before = cache * 2 if reads else rows
        cache.index_copy_(0, index, rows)
        return before, cache.index_select(0, index) + 1

    compiled = compile_on_hpu(insert)
    index = torch.tensor([2, 0], device="hpu")
    caches = [_randn(torch, 6, 4) for _ in range(2)]
    rows = _randn(torch, 2, 4)
    for actual, expected in zip(
        compiled(caches[0], index, rows), insert(caches[1], index, rows), strict=True
    ):
        assert torch.equal(actual, expected)
    assert torch.equal(*caches)
    assert ("aten::index_copy_" in operators(compiled, caches[0], index, rows)) != reads
