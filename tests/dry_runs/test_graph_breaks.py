"""Test graph breaks of compiled code in dry runs."""

from tools.dry_runs import Program, compared

NESTED = """
import torch
from torch import nn

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, scale):
        x = self.layer(x)
        print("a graph break")
        return x * scale

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x, scale=2) + 1

model = nn.Sequential(Outer(), nn.ReLU(), Outer()).to("hpu")
model.compile(backend="hpu_backend")
for _ in range(3):
    model(torch.ones(4, 8, device="hpu")).sum().backward()
"""


def test_modules_that_break_graphs_are_compiled_as_in_a_real_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(NESTED)
    comparison = compared(Program("train", str(script)))
    assert comparison.dry == comparison.real
    assert comparison.real[0].graph_breaks > 2


def test_graph_breaks_of_compiled_code_are_counted(dry):
    result, _ = dry("""
    import torch

    @torch.compile(backend="hpu_backend")
    def doubled(x):
        x = x + x
        print("a graph break")
        return x + x

    doubled(torch.ones(8, device="hpu"))
    """)
    assert (result.graphs, result.graph_breaks) == (2, 1)
    assert "graph breaks" in str(result)


def test_code_with_dynamic_shapes_runs_without_warnings(dry, capfd):
    result, _ = dry("""
    import torch

    layer = torch.compile(torch.nn.Linear(8, 4).to("hpu"), backend="hpu_backend", dynamic=True)
    layer(torch.ones(4, 8).to("hpu")).sum().backward()
    """)
    assert result.graphs == 2
    assert "record_function" not in capfd.readouterr().err
