"""Test the vendor's helper functions for the compile backend."""

import collections

import pytest
from habana_frameworks.torch.dynamo.debug_utils import logger
from habana_frameworks.torch.dynamo.utils import auto_map, str_join

Pair = collections.namedtuple("Pair", "left right")


def test_auto_map_maps_over_nested_lists_and_tuples():
    double = auto_map(lambda value, by=2: value * by)
    assert double([1, (2, Pair(3, [4]))], by=3) == [3, (6, Pair(9, [12]))]
    assert str_join(", ", [1, "a"]) == "1, a"


def test_backend_logs_calls_and_graphs():
    backend, graphs = logger.get_compile_backend_logger(), logger.get_fx_graph_logger()
    assert (backend.type, graphs.type) == ("PT_COMPILE", "PT_COMPILE FX GRAPH")
    assert logger.get_compile_backend_logger() is backend

    @logger.log_function_start_end
    def work(fails):
        return 1 // (not fails)

    for log in (backend, graphs):
        log.data.clear()
        log.set_store_data(True)
    try:
        assert work(False) == 1
        with pytest.raises(ZeroDivisionError):
            work(True)
        logger.dump_fx_graph("traced", "compiled", 7)
    finally:
        for log in (backend, graphs):
            log.set_store_data(False)
    name = work.__qualname__
    assert backend.data == [f"[PT_COMPILE] {name} {word}" for word in ("begins", "ends")] * 2
    assert graphs.data == [
        "[PT_COMPILE FX GRAPH] recipe, 7",
        "[PT_COMPILE FX GRAPH] traced graph, traced",
        "[PT_COMPILE FX GRAPH] compiled graph, compiled",
    ]


COMPILED_AUTOGRAD = """
import torch, torch._dynamo
{enable}
def step(a):
    return (a * a).sum()
compiled = torch.compile(step, backend="hpu_backend")
a = torch.ones(3, device="hpu", requires_grad=True)
compiled(a).backward()
print(a.grad.tolist(), torch._dynamo.utils.counters["compiled_autograd"]["captures"])
"""
ENABLE = """
from habana_frameworks.torch.dynamo.compile_backend import experimental
experimental.enable_compiled_autograd(dynamic=False)
"""


@pytest.mark.parametrize(
    ("enable", "flag", "captures"), [(ENABLE, "0", 1), ("", "true", 1), ("", "0", 0)]
)
def test_compiled_autograd_is_enabled_by_a_call_or_a_flag(forked_script, enable, flag, captures):
    out = forked_script(
        COMPILED_AUTOGRAD.format(enable=enable),
        simulated=True,
        PT_HPU_ENABLE_COMPILED_AUTOGRAD=flag,
    )
    assert out.splitlines() == [f"[2.0, 2.0, 2.0] {captures}"]
