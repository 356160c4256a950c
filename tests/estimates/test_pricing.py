"""Test costs of operations in cases that can be calculated by hand."""

from dataclasses import replace

import pytest
import torch
from priced_programs import PEAK, costs_of, nn, traced, trained

from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.hardware import GENERATIONS, LINK_EFFICIENCY, generation_named
from hpu_magic.estimates.cost.links import scatter
from hpu_magic.estimates.cost.pricing import SECONDS_PER_OPERATOR, compile_seconds, price
from hpu_magic.estimates.cost.work import work_of
from hpu_magic.estimates.deepspeed.configuration import Configuration
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.layout import parse
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

GAUDI2 = GENERATIONS["gaudi2"]
BANDWIDTH = 2.45e12 * FITTED.memory_efficiency["gaudi2"]


def with_views(layout):
    return replace(layout, buckets=replace(layout.buckets, views=True))


class Chain(nn.Module):
    def forward(self, x):
        return (x.relu() * 2).neg()


class InPlaceChain(nn.Module):
    def forward(self, x):
        return x.relu().mul_(2).neg_()


def test_large_products_run_at_the_arrays_peak():
    program = traced(nn.Linear(8192, 8192, bias=False), 8192, 8192)
    (cost,) = costs_of(price(program, "gaudi2", mode="eager"))
    assert cost.matrix == pytest.approx(2 * 8192**3 / PEAK)
    assert cost.launch == FITTED.launch_seconds
    assert cost.vector == cost.links == 0


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4096, 4096))

    def forward(self, x):
        self.update(self.seen, x)
        return x.sum()


def test_copies_of_results_to_existing_tensors_are_omitted_in_graphs():
    def update(copies):
        def run(seen, x):
            seen.copy_(seen + x) if copies else seen.add_(x)

        model = Counter()
        model.update = run
        return traced(model, 4096, 4096)

    own, copied = (
        [price(update(copies), "gaudi2", mode=mode).seconds for mode in ("eager", "graphs")]
        for copies in (False, True)
    )
    assert copied[0] > own[0]
    assert copied[1] == own[1]


def test_small_outputs_leave_arrays_empty():
    full, half = (
        costs_of(price(traced(nn.Linear(4096, width, bias=False), 4096, 4096), "gaudi2"))[0].matrix
        for width in (256, 128)
    )
    # Two engines with 256 x 256 arrays, or 512 x 128: both widths fill them.
    assert full == pytest.approx(2 * half)
    thin = costs_of(price(traced(nn.Linear(4096, 64, bias=False), 4096, 4096), "gaudi2"))[0].matrix
    assert thin == pytest.approx(half)


def test_products_with_one_row_are_bound_by_memory():
    (cost,) = costs_of(price(traced(nn.Linear(4096, 4096, bias=False), 1, 4096), "gaudi2"))
    assert cost.limit == "memory"
    assert cost.memory == pytest.approx(2 * (4096 * 4096 + 2 * 4096) / BANDWIDTH, rel=0.01)


class FirstRows(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, x):
        return x[: self.rows].clone()


@pytest.mark.parametrize(("rows", "launches"), [(0, 0), (1, 1)])
def test_operations_with_empty_results_are_not_launched(rows, launches):
    prices = price(traced(FirstRows(rows), 4, 64), "gaudi2", mode="eager")
    assert prices.by_kind.get("launches", 0) == launches * FITTED.launch_seconds


def test_elementwise_operations_move_their_operands_and_results():
    (cost,) = costs_of(price(traced(nn.ReLU(), 2**24), "gaudi2", mode="eager"))
    assert cost.memory == pytest.approx(2 * 2 * 2**24 / BANDWIDTH)
    rate = GAUDI2.vector_flops / 2 * FITTED.vector_efficiency
    assert cost.vector == pytest.approx(2**24 / rate)
    assert cost.limit == "memory"


@pytest.mark.parametrize("model", [Chain(), InPlaceChain()])
def test_graphs_avoid_memory_traffic_between_elementwise_operations(model):
    program = traced(model, 2**24)
    eager, lazy = (price(program, "gaudi2", mode=mode) for mode in ("eager", "lazy"))
    once = 2 * 2**24 / BANDWIDTH
    assert sum(each.memory for each in eager.operations) == pytest.approx(6 * once)
    inside = 4 * (1 - FITTED.fusion)
    assert sum(each.memory for each in lazy.operations) == pytest.approx((2 + inside) * once)
    assert sum(each.launch for each in eager.operations) == 3 * FITTED.launch_seconds
    assert sum(each.launch for each in lazy.operations) == FITTED.node_seconds


def test_engines_of_a_graph_run_in_parallel():
    program = trained(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()), 8192, 2048)
    graph, eager = (price(program, "gaudi2", mode=mode) for mode in ("graphs", "eager"))
    sums = [
        sum(getattr(each, engine) for each in graph.operations)
        for engine in ("matrix", "vector", "memory")
    ]
    launches = sum(each.launch for each in graph.operations)
    assert graph.seconds == pytest.approx(max(sums) + launches)
    assert eager.seconds == pytest.approx(sum(each.seconds for each in eager.operations))
    assert graph.seconds < eager.seconds


def test_lookups_and_updates_move_only_their_rows():
    class Looked(nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.table = nn.Embedding(rows, 64)
            self.register_buffer("cache", torch.zeros(rows, 64))

        def forward(self, places):
            found = self.table(places)
            self.cache.index_copy_(0, places, found)
            return found * 2

    def moved(rows):
        with torch.device("meta"):
            model = Looked(rows)
            places = torch.zeros(32, dtype=torch.int64)
        program = trace_step(model, (places,), {}, StepOptions(train=False))
        costs = price(program, "gaudi2", mode="eager").operations
        return [each.memory for each in costs if each.memory]

    assert moved(1_000) == moved(1_000_000)


def test_convolution_reads_its_image_once():
    model = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(64, 16, 5, padding=2))
    program = trained(model, 8, 32, 10, 10)
    inputs, hidden, outputs = (8 * channels * 100 for channels in (32, 64, 16))
    first, second = 64 * 32 * 9, 16 * 64 * 25
    products = [one for each in program.operations for one in work_of(each).products]
    assert [
        tuple(round(each.elements(name)) for name in ("left", "right", "result"))
        for each in products
    ] == [
        (inputs, first, hidden),
        (hidden, second, outputs),
        (outputs, second, hidden),
        (outputs, hidden, second),
        (hidden, inputs, first),
    ]


def test_optimizer_reads_and_writes_weights_and_moments():
    program = trained(nn.Linear(1024, 1024, bias=False), 1, 1024, optimizer=maker("fusedadamw"))
    *_, cost = costs_of(price(program, "gaudi2"))
    # AdamW reads the weight, gradient and two moments, and writes all except the gradient.
    moved = sum(each.bytes for each in program.operations[-1].reads)
    assert moved >= 4 * 2 * 1024**2
    moved += sum(each.bytes for each in program.operations[-1].writes)
    assert moved >= 7 * 2 * 1024**2
    assert cost.memory == pytest.approx(moved / BANDWIDTH)


def test_compilation_time_depends_on_the_number_of_operators():
    program = traced(nn.Sequential(*(nn.ReLU() for _ in range(10))), 8, 8)
    for mode in ("lazy", "graphs", "compile"):
        assert compile_seconds(program, mode) == pytest.approx(10 * SECONDS_PER_OPERATOR)
    assert compile_seconds(program, "eager") == 0


def test_kinds_add_up_to_the_step():
    program = trained(
        nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)),
        512,
        256,
        optimizer=maker("adamw"),
    )
    prices = price(program, "gaudi3", layout=parse(8, "tp=2,pp=2,zero1"), accumulate=4)
    assert sum(prices.by_kind.values()) == pytest.approx(prices.seconds)
    assert {"links", "launches", "waiting"} <= set(prices.by_kind)
    assert len(prices.operations) == len(program.operations)


def test_gradients_are_exchanged_over_the_links():
    program = trained(nn.Linear(4096, 4096, bias=False), 1, 4096)
    one = price(program, "gaudi2", layout=parse(1))
    for cards in (2, 8):
        several = price(program, "gaudi2", layout=with_views(parse(cards, "ddp")))
        rate = 37.5e9 * (cards - 1) * LINK_EFFICIENCY
        wire = 2 * 4096 * 4096 * (cards - 1) / cards / rate
        copied = 2 * 2 * 4096**2 / BANDWIDTH
        expected = 2 * (wire + FITTED.link_latency) * FITTED.exchange["ddp"] + copied
        assert several.seconds - one.seconds == pytest.approx(expected)


def test_deepspeed_does_not_gather_weights_again_that_are_used_soon():
    layers = [nn.Linear(4096, 4096, bias=False) for _ in range(4)]
    program = trained(nn.Sequential(*layers), 1, 4096)

    def gathered(layout, distance=10**9):
        prices = price(
            program,
            "gaudi2",
            layout=parse(8, layout),
            deepspeed=Configuration(prefetch_bucket_size=0, max_reuse_distance=distance),
        )
        size = 2 * 4 * 4096 * 4096
        one = scatter(size, 8, generation_named("gaudi2"), FITTED)
        return prices.exchange / FITTED.exchange["zero3"] / one - 1

    assert gathered("fsdp") == pytest.approx(2)
    assert gathered("zero3") == pytest.approx(1)
    # The backward pass begins with the last layer.
    assert gathered("zero3", distance=1) == pytest.approx(2 - 1 / 4)


@pytest.mark.parametrize("mode", ["eager", "compile", "lazy"])
def test_gradients_are_copied_to_buckets_and_back_unless_they_are_views(mode):
    program = trained(nn.Linear(4096, 4096, bias=False), 1, 4096, compiled=mode == "compile")
    layout = parse(8, "ddp")
    both_ways, viewed = (
        price(program, "gaudi2", layout=each, mode=mode).exchange
        for each in (layout, with_views(layout))
    )
    size = 2 * 4096**2
    wire = 2 * FITTED.exchange["ddp"] * scatter(size, 8, generation_named("gaudi2"), FITTED)
    launch = 0.0 if mode == "lazy" else FITTED.launch_seconds
    copy = launch + 2 * size / BANDWIDTH
    assert viewed == pytest.approx(wire + copy)
    assert both_ways == pytest.approx(wire + 2 * copy)


def test_casts_to_fp8_start_a_kernel_only_after_a_matmul():
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(2)]
    for model, started in (
        (nn.Sequential(*layers), 1),
        (nn.Sequential(layers[0], nn.ReLU(), layers[1]), 0),
    ):
        program = traced(model, 512, 1024)
        in_bf16, in_fp8 = (
            sum(each.launch for each in price(program, "gaudi2", dtype=dtype).operations)
            for dtype in ("bf16", "fp8")
        )
        assert in_fp8 - in_bf16 == pytest.approx(started * FITTED.node_seconds)


class Scaled(nn.Module):
    """A product of 8-bit matrices with float32 scales and a bf16 bias."""

    def forward(self, x):
        left = x.to(torch.float8_e4m3fn)
        one = torch.ones((), dtype=torch.float32, device=x.device)
        return torch._scaled_mm(left, left.t(), one, one, x[0], out_dtype=torch.bfloat16)


class Gemm(nn.Module):
    """The vendor's 8-bit product with float32 scales."""

    def forward(self, x):
        left = x.to(torch.float8_e4m3fn)
        one = torch.ones(1, dtype=torch.float32, device=x.device)
        return torch.ops.hpu.fp8_gemm_v2(
            left, False, left, True, None, torch.bfloat16, one, one, None, False
        )


@pytest.mark.parametrize("model", [Scaled(), Gemm()])
def test_scales_and_biases_do_not_change_the_type_of_a_product(model):
    program = traced(model, 4096, 4096)
    (seconds,) = (cost.matrix for cost in price(program, "gaudi2").operations if cost.matrix)
    rate = 865e12 * FITTED.matrix_efficiency["gaudi2"]
    assert seconds == pytest.approx(2 * 4096**3 / rate)


def test_type_of_a_product_is_that_of_its_matrices():
    class Mixed(nn.Module):
        def forward(self, x):
            summand = x.float()
            return torch.addmm(summand, x, x, out_dtype=torch.float32)

    program = traced(Mixed(), 4096, 4096)
    (seconds,) = (cost.matrix for cost in price(program, "gaudi2").operations if cost.matrix)
    assert seconds == pytest.approx(2 * 4096**3 / PEAK)


def test_pipelines_have_a_bubble():
    program = trained(nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512)), 512, 512)
    one = price(program, "gaudi2", accumulate=4)
    two = price(program, "gaudi2", layout=parse(None, "pp=2"), accumulate=4)
    assert two.by_kind["waiting"] == pytest.approx(one.seconds / 2 / 4)
    assert two.seconds == pytest.approx(one.seconds / 2 * 5 / 4)


def test_fp8_applies_to_linear_layers():
    program = traced(nn.Linear(8192, 8192, bias=False), 8192, 8192)
    two, eight = (price(program, "gaudi2", dtype=name) for name in ("bf16", "fp8"))
    ratio = two.operations[-1].matrix / eight.operations[-1].matrix
    assert ratio == pytest.approx(865 / 432)


def memory_of(function, *shapes):
    """Return the number of bytes that an operation moves."""

    class Called(nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    inputs = tuple(torch.empty(shape, device="meta") for shape in shapes)
    program = trace_step(Called(), inputs, {}, StepOptions(train=False, dtype=torch.bfloat16))
    seconds = sum(each.memory for each in price(program, "gaudi2", mode="eager").operations)
    return seconds * BANDWIDTH


def test_operations_move_their_operands_and_results():
    size = 2 * 2**20
    shape = (2, 2**19)
    assert memory_of(torch.zeros_like, shape) == pytest.approx(size)  # reads only the shape
    assert memory_of(lambda to, of: to.copy_(of), shape, shape) == pytest.approx(2 * size)
    assert memory_of(lambda one: one.zero_(), shape) == pytest.approx(size)
    # This product reads two halves of a tensor, and writes half as much.
    assert memory_of(lambda one: one[0] * one[1], shape) == pytest.approx(1.5 * size)
    assert memory_of(lambda one: one * one, shape) == pytest.approx(2 * size)


def test_depthwise_convolutions_read_their_input_once():
    model = nn.Conv2d(256, 256, 7, padding=3, groups=256, bias=False)
    (cost,) = costs_of(price(traced(model, 8, 256, 64, 64), "gaudi2", mode="eager"))
    assert cost.memory == pytest.approx(2 * 2 * 8 * 256 * 64 * 64 / BANDWIDTH, rel=0.1)


@pytest.mark.parametrize("generation", ["gaudi", "gaudi2", "gaudi3"])
def test_more_rows_never_take_less_time(generation):
    model = nn.Linear(4096, 4096, bias=False)
    seconds = [
        price(traced(model, rows, 4096), generation, mode="eager").seconds for rows in range(1, 9)
    ]
    assert seconds == sorted(seconds)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(8, 512, 1024))

    def forward(self, x):
        ends = torch.arange(1, 9, dtype=torch.int32, device=x.device) * (x.shape[0] // 8)
        return nn.functional.grouped_mm(x, self.weight, offs=ends)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrix_products_of_experts_count_each_token_once(dtype):
    model = Experts().to("meta")
    inputs = torch.empty(4096, 512, device="meta", requires_grad=True)
    program = trace_step(model, (inputs,), {}, StepOptions(dtype=dtype))
    costs = [each.matrix for each in price(program, "gaudi2").operations if each.matrix]
    peak = GAUDI2.matrix_flops["bf16" if dtype is torch.bfloat16 else "fp32"]
    expected = 2 * 4096 * 512 * 1024 / (peak * FITTED.matrix_efficiency["gaudi2"])
    assert costs == [pytest.approx(expected)] * 2


def test_few_tokens_read_only_their_experts():
    def moved(rows):
        program = traced(Experts(), rows, 512)
        return max(each.memory for each in price(program, "gaudi2").operations)

    one = 2 * 512 * 1024 / BANDWIDTH
    assert moved(1) == pytest.approx(one, rel=0.01)
    assert moved(64) == pytest.approx(8 * one, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generation": "gaudi4"}, r"card='gaudi4' is unknown: use gaudi, gaudi2"),
        ({"generation": "gaudi", "dtype": "fp8"}, r"not supported by gaudi:"),
        ({"generation": "gaudi2", "dtype": "int4"}, r"dtype='int4' is unknown"),
        ({"generation": "gaudi2", "mode": "fast"}, r"mode='fast' is unknown: use one of eager"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(EstimateError, match=message):
        price(traced(nn.ReLU(), 8), **options)


def test_generations_have_several_names():
    names = [generation_named(name).name for name in ("Gaudi 2", "g3", "GAUDI")]
    assert names == ["gaudi2", "gaudi3", "gaudi"]


def test_convolutions_are_products_of_their_unfolded_inputs():
    model = nn.Conv2d(64, 128, 3, padding=1, bias=False)
    program = trained(model, 32, 64, 56, 56)
    costs = {
        str(operation.operator): cost
        for operation, cost in zip(
            program.operations, price(program, "gaudi2").operations, strict=True
        )
    }
    flops = 2 * 32 * 56 * 56 * 128 * 64 * 9
    assert costs["aten.convolution.default"].matrix == pytest.approx(flops / PEAK, rel=0.05)


class Moved(nn.Module):
    def __init__(self, move):
        super().__init__()
        self.move = move

    def forward(self, x):
        return self.move(x.relu()).neg()


def test_rolled_elements_are_moved_in_a_kernel_of_their_own():
    moves = [torch.abs, lambda x: x.transpose(0, 1).contiguous(), lambda x: x.roll(1, 0)]
    plain, transposed, rolled = (
        price(traced(Moved(move), 64, 64, 4096), "gaudi2").operations for move in moves
    )
    for fused in (plain, transposed):
        assert sum(each.launch for each in fused) == pytest.approx(FITTED.node_seconds)
    assert sum(each.launch for each in rolled) == pytest.approx(3 * FITTED.node_seconds)
    assert sum(each.memory for each in rolled) > sum(each.memory for each in plain)


def test_rows_are_padded_to_complete_vectors():
    def instructions(width):
        return costs_of(price(traced(nn.Softmax(-1), 4096, width), "gaudi2"))[0].vector

    assert instructions(49) == pytest.approx(instructions(128))
    assert instructions(256) == pytest.approx(2 * instructions(128))


def test_zero_exchanges_gradients_and_gathers_weights():
    program = trained(nn.Linear(4096, 4096, bias=False), 1, 4096)
    part = 2 * 4096 * 4096 * 7 / 8 / (37.5e9 * 7 * LINK_EFFICIENCY) + FITTED.link_latency
    exchanged = {
        how: price(program, "gaudi2", layout=parse(8, how)).exchange for how in ("zero2", "fsdp")
    }
    assert exchanged["zero2"] == pytest.approx(2 * part * FITTED.exchange["zero"])
    assert exchanged["fsdp"] == pytest.approx(3 * part * FITTED.exchange["zero3"])
