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
