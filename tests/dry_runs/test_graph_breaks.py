"""Test graph breaks of compiled code in dry runs."""


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
