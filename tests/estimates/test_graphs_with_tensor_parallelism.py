"""The graphs into which all-reduces of tensor parallelism divide compiled code."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.estimates.cost.products import name_of
from hpu_magic.estimates.cost.quantities import quantities
from hpu_magic.estimates.layout import parse
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

SIZE = 256
VIEWS = {"t", "view", "_unsafe_view", "transpose", "detach", "alias"}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(SIZE, SIZE, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(SIZE, SIZE, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (each(x).unflatten(-1, (4, -1)).transpose(1, 2) for each in self.projections)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(SIZE, 512, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(512, SIZE, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.attention = Norm(), Attention()
        self.after, self.mlp = Norm(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.after(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = Norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model, self.head = Decoder(), nn.Linear(SIZE, 512, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.model(x)).softmax(-1)


class Names(TorchDispatchMode):
    """Records the names of operators, except views."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if (name := name_of(function)) not in VIEWS:
            self.names.append(name)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def add_partial_sums() -> Iterator[Callable[..., None]]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield lambda layer, inputs, output: distributed.all_reduce(output)
    distributed.destroy_process_group()


def graphs_of_pytorch(model: nn.Module, inputs: torch.Tensor) -> list[list[str]]:
    """Return the operators of each graph that PyTorch runs."""
    runs: list[list[str]] = []

    def compiled(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            with Names() as found:
                result = graph.forward(*args)
            runs.append(found.names)
            return result

        return run

    torch._dynamo.reset()
    with torch.no_grad():
        torch._dynamo.optimize(compiled)(model)(inputs)  # transformers replaces torch.compile
    return runs


def graphs_of_estimate(model: nn.Module, inputs: torch.Tensor, cards: int) -> list[list[str]]:
    """Return the operators of each compiled graph in an estimate."""
    program = trace_step(model, (inputs,), {}, StepOptions(train=False, compiled=True))
    layout = parse(None, f"tp={cards}")
    found, _ = quantities(
        program, generation_named("gaudi2"), mode="compile", fp8=False, layout=layout
    )
    runs: dict[float, list[str]] = {}
    for operation, graph, eager in zip(program.operations, found.graph, found.eager, strict=True):
        if not operation.is_view and not eager:
            runs.setdefault(graph, []).append(name_of(operation.operator))
    return list(runs.values())


@pytest.mark.parametrize(
    ("build", "count"),
    [
        pytest.param(LanguageModel, 2 * 7 + 2, id="list of layers"),
        pytest.param(lambda: nn.Sequential(FeedForward(), FeedForward()), 4, id="sequence"),
        pytest.param(Layer, 7, id="one layer"),
    ],
)
def test_all_reduces_divide_compiled_graphs_like_pytorch(
    build: Callable[[], nn.Module], count: int, add_partial_sums: Callable[..., None]
) -> None:
    model, inputs = build(), torch.ones(2, 64, SIZE)
    estimated = graphs_of_estimate(model, inputs, cards=2)
    for name, layer in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            layer.register_forward_hook(add_partial_sums)
    assert estimated == graphs_of_pytorch(model, inputs)
    assert len(estimated) == count


def test_model_on_one_card_is_one_graph() -> None:
    model, inputs = LanguageModel(), torch.ones(2, 64, SIZE)
    (whole,) = graphs_of_estimate(model, inputs, cards=1)
    assert [whole] == graphs_of_pytorch(model, inputs)
