"""The graphs in which the operations of a step run, in estimates."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.backends.distributed import DDPOptimizer
from torch.utils.checkpoint import checkpoint

from hpu_magic.estimates.cost.graphs import graphs_of
from hpu_magic.estimates.layout import Buckets, parse
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.program import Phase
from hpu_magic.estimates.tracing.step import StepOptions, trace_step


@pytest.fixture(scope="module")
def program():
    return four_layers()


def four_layers(*, compiled=False):
    """Return the program of four layers, each of which has 16 MiB of gradients."""
    layers = [nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.ReLU()) for _ in range(4)]
    with torch.device("meta"):
        model = nn.Sequential(*layers)
        inputs = torch.ones(8, 2048)
    return trace_step(model, (inputs,), {}, StepOptions(optimizer=maker("sgd"), compiled=compiled))


def phases(program, numbers):
    """Return the phases of each graph, without graphs that contain only views."""
    found = {}
    for operation, number in zip(program.operations, numbers, strict=True):
        if not operation.is_view:
            found.setdefault(number, set()).add(operation.phase)
    return list(found.values())


def test_lazy_step_on_a_card_has_two_graphs(program):
    graphs = graphs_of(program, "lazy", parse(1))
    assert graphs.parts == graphs.whole
    assert phases(program, graphs.whole) == [{Phase.FORWARD, Phase.BACKWARD}, {Phase.OPTIMIZER}]


def test_passes_of_compiled_code_are_separate_graphs(program):
    graphs = graphs_of(program, "compile", parse(1))
    found = phases(program, graphs.whole)
    assert found == [{Phase.FORWARD}, {Phase.FORWARD}, {Phase.BACKWARD}, {Phase.OPTIMIZER}]
    (eager,) = graphs.eager
    assert program.operations[eager].operator is torch.ops.aten.ones_like.default


class Tagger(nn.Module):
    """A recurrent module between two layers."""

    def __init__(self):
        super().__init__()
        self.before, self.rnn, self.after = nn.Linear(4, 8), nn.GRU(8, 8), nn.Linear(8, 2)

    def forward(self, inputs):
        return self.after(self.rnn(self.before(inputs))[0])


@pytest.mark.parametrize("nested", [False, True])
def test_module_with_a_recurrent_module_is_not_compiled(nested):
    model = nn.Sequential(nn.Linear(4, 4), Tagger()) if nested else Tagger()
    options = StepOptions(optimizer=maker("sgd"), compiled=True)
    program = trace_step(model, (torch.ones(3, 2, 4),), {}, options)
    graphs = graphs_of(program, "compile", parse(1))
    compiled = {
        (operation.module, operation.phase is Phase.OPTIMIZER)
        for number, operation in enumerate(program.operations)
        if number not in graphs.eager
    }
    assert compiled == ({("", True), ("0", False), ("", False)} if nested else {("", True)})
    assert len({graphs.whole[number] for number in graphs.eager}) == len(graphs.eager)


class Net(nn.Module):
    """A module with weights of 16 MiB and 32 MiB in bfloat16."""

    def __init__(self, *, has_list=False):
        super().__init__()
        self.first = nn.Linear(2048, 4096)
        layers = [Residual() for _ in range(2)]
        self.layers = nn.ModuleList(layers) if has_list else nn.Sequential(*layers)
        self.last = nn.Linear(4096, 1)

    def forward(self, inputs):
        x = self.first(inputs)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.Linear(4096, 4096, bias=False)
        self.after = nn.Linear(4096, 4096, bias=False)
        self.inside = nn.ModuleList([nn.ReLU()])  # not a list of layers

    def forward(self, x):
        return x + self.after(self.inside[0](self.before(x)))


def compiled(model):
    with torch.device("meta"):
        model, inputs = model.to("meta"), torch.ones(8, 2048)
    options = StepOptions(dtype=torch.bfloat16, optimizer=maker("sgd"), compiled=True)
    return trace_step(model, (inputs,), {}, options)


def modules(program, graphs):
    """Return the modules and the phase of each compiled graph, and the operators between them."""
    found = {}
    for number, graph in enumerate(graphs.whole):
        operation = program.operations[number]
        if operation.is_view or operation.phase is Phase.OPTIMIZER:
            continue
        if number in graphs.eager:
            found[graph] = operation.operator
        else:
            found.setdefault(graph, {})[operation.module] = operation.phase
    return [each if callable(each) else "|".join(each) for each in found.values()]


FORWARD = "{0}.before|{0}.inside.0|{0}.after|{0}"
BACKWARD = "{0}.after|{0}.inside.0|{0}.before"
ONES, ADD = torch.ops.aten.ones_like.default, torch.ops.aten.add.Tensor


def test_ddp_divides_compiled_graphs_at_buckets():
    program = compiled(Net())
    # The buckets are filled from the end, and the last layer is smaller than the first bucket.
    # Autograd adds the gradients of each layer's input, which two graphs calculate.
    assert modules(program, graphs_of(program, "compile", parse(8, "ddp"))) == [
        *("first", "layers.0.before|layers.0.inside.0", "layers.0.after|layers.0"),
        *("layers.1.before|layers.1.inside.0", "layers.1.after|layers.1|last|"),
        ONES,
        *("|last|layers.1.after", "layers.1.inside.0|layers.1.before", ADD),
        *("layers.0.after", "layers.0.inside.0|layers.0.before", ADD, "first"),
    ]


SIZE = 1024


class CrossAttention(nn.Module):
    """Attention whose queries, keys and values use different parts of a weight."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(SIZE, 8) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, x + 1, x + 2, need_weights=False)[0]
        return x


class RepeatedLayers(nn.Module):
    """Two layers that run three times; PyTorch counts their weights in each run."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))

    def forward(self, x):
        for _ in range(3):
            x = self.layers(x)
        return x


class TiedEmbedding(nn.Module):
    """A language model whose last layer uses the weight of the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(2048, SIZE)
        self.layers = nn.Sequential(*[nn.Linear(SIZE, SIZE) for _ in range(4)])
        self.head = nn.Linear(SIZE, 2048, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.layers(self.embedding(x.argmax(-1))))


class JoinedWeights(nn.Module):
    """Layers whose weights are concatenated; PyTorch does not count weights in lists."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE)
        self.last = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x):
        for _ in range(2):
            x = self.last(x @ torch.cat([self.first.weight, self.second.weight], 1))
        return x


class LargeNorms(nn.Module):
    """Norms with many weights, without other layers."""

    def __init__(self):
        super().__init__()
        size = self.size = 2**20
        norms = nn.LayerNorm(size), nn.RMSNorm(size), nn.GroupNorm(1, size), nn.BatchNorm1d(size)
        self.norms = nn.Sequential(*norms)
        self.last = nn.InstanceNorm1d(size, affine=True)

    def forward(self, x):
        x = self.norms(x[:, 0].repeat(1, self.size // SIZE))
        return self.last(x[..., None].expand(*x.shape, 2))


class KeywordWeights(nn.Module):
    """Layers whose weights are keyword arguments, which PyTorch does not count."""

    def __init__(self):
        super().__init__()
        weights = (nn.Parameter(torch.ones(SIZE, SIZE)) for _ in range(4))
        self.weights = nn.ParameterList(weights)

    def forward(self, x):
        for weight in self.weights:
            x = nn.functional.linear(input=x, weight=weight)
        return x


class Recomputed(nn.Module):
    """Layers that recompute their activations; PyTorch does not divide such a layer."""

    def __init__(self):
        super().__init__()
        layers = (nn.Sequential(nn.Linear(SIZE, 4 * SIZE), nn.ReLU()) for _ in range(3))
        self.layers = nn.ModuleList(
            nn.Sequential(*each, nn.Linear(4 * SIZE, SIZE)) for each in layers
        )
        self.head = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


divides_around_checkpoints = pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"),
    reason="PyTorch 2.6 cannot divide graphs with checkpoints",
)


def graphs_of_pytorch(model, inputs, size, dtype):
    """Count the graphs into which PyTorch divides a forward pass."""
    graphs = []

    def compiled(graph, _):
        graphs.append(graph)
        return graph.forward

    optimizer = DDPOptimizer(size, compiled)
    torch._dynamo.reset()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        # transformers replaces torch.compile
        torch._dynamo.optimize(optimizer.compile_fn)(model)(inputs)
    return len(graphs)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (CrossAttention, 2),
        (RepeatedLayers, 4),
        (TiedEmbedding, 4),
        (JoinedWeights, 2),
        (LargeNorms, 4),
        (KeywordWeights, 1),
        pytest.param(Recomputed, 4, marks=divides_around_checkpoints),
    ],
)
def test_ddp_divides_compiled_graphs_like_pytorch(kind, count, dtype):
    size = 8 * 2**20
    model, inputs = kind(), torch.ones(2, 8, SIZE)
    assert graphs_of_pytorch(model, inputs, size, dtype) == count
    options = StepOptions(autocast=dtype, optimizer=maker("sgd"), compiled=True)
    program = trace_step(model, (inputs,), {}, options)
    layout = replace(parse(8, "ddp"), buckets=Buckets(others=size))
    graphs = graphs_of(program, "compile", layout)
    forward = (
        number
        for number, operation in enumerate(program.operations)
        if operation.phase is Phase.FORWARD and number not in graphs.eager
    )
    assert len({graphs.whole[number] for number in forward}) == count


@pytest.mark.parametrize(("mode", "count"), [("lazy", 2), ("compile", 6)])
def test_large_buckets_divide_graphs_rarely(mode, count):
    program = four_layers(compiled=mode == "compile")
    # PyTorch always divides compiled code after the first MiB of weights.
    size = 2**30
    layout = replace(parse(8, "ddp"), buckets=Buckets(size, size))
    divided = set(graphs_of(program, mode, parse(8, "ddp")).parts)
    assert len(set(graphs_of(program, mode, layout).parts)) == count < len(divided)


def test_fsdp_compiles_each_layer():
    program = compiled(Net())
    assert modules(program, graphs_of(program, "compile", parse(8, "fsdp"))) == [
        *("first", FORWARD.format("layers.0"), FORWARD.format("layers.1"), "last|"),
        ONES,
        *("|last", BACKWARD.format("layers.1"), BACKWARD.format("layers.0"), "first"),
    ]


def test_function_with_a_loop_over_layers_of_fsdp_is_not_compiled():
    program = compiled(Net(has_list=True))
    graphs = graphs_of(program, "compile", parse(8, "fsdp"))
    # Modules that the function calls are compiled.
    assert [each for each in modules(program, graphs) if isinstance(each, str)] == [
        *("first", FORWARD.format("layers.0"), FORWARD.format("layers.1"), "last"),
        *("last", BACKWARD.format("layers.1"), BACKWARD.format("layers.0"), "first"),
    ]
    eager = {program.operations[number].module for number in graphs.eager}
    assert eager == {""}


def test_sequential_with_layers_of_fsdp_is_not_compiled_inside_or_outside():
    layers = [nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.ReLU()) for _ in range(2)]
    program = compiled(nn.Sequential(*layers))
    graphs = graphs_of(program, "compile", parse(8, "fsdp"))
    assert [each for each in modules(program, graphs) if isinstance(each, str)] == [
        *("0.0", "0.1", "1.0", "1.1"),
        *("1.1", "1.0", "0.1", "0.0"),
    ]


def test_buckets_of_gradients_end_lazy_graphs(program):
    graphs = graphs_of(program, "lazy", parse(8, "ddp"))
    # The first bucket holds 1 MiB, and the others 25 MiB: one, two and one layers.
    found = phases(program, graphs.parts)
    assert found == [{Phase.FORWARD, Phase.BACKWARD}, *[{Phase.BACKWARD}] * 2, {Phase.OPTIMIZER}]
    assert graphs_of(program, "lazy", parse(8, "zero2")).parts == graphs.whole


def test_layers_of_fsdp_are_separate_lazy_graphs(program):
    graphs = graphs_of(program, "lazy", parse(8, "fsdp"))
    # The last layer has one graph for both passes, because its weights are already there.
    assert len(phases(program, graphs.parts)) == 4 + 3 + 1


def test_modules_with_sharded_weights_are_separate_lazy_graphs_with_zero3(program):
    graphs = graphs_of(program, "lazy", parse(8, "zero3"))
    ends = {
        program.operations[number - 1].module
        for number in range(1, len(graphs.parts))
        if graphs.parts[number] > graphs.parts[number - 1]
    }
    assert graphs.parts == graphs.whole
    # Activations have no weights, and are in the graph of the layer before them.
    assert {"0.1", "1.1", "2.1"} <= ends
    assert len(phases(program, graphs.parts)) == 4 + 3 + 1
