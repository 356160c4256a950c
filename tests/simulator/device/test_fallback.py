"""Operators that the vendor's bridge has no kernel for run on the CPU, counted or refused."""

import pytest

PROGRAM = """
    import torch
    from habana_frameworks.torch.hpu.metrics import metric_global
    matrix = torch.eye(3, device="hpu")
    try:
        print(torch.linalg.eigvals(matrix).real.sum().item())
    except RuntimeError as refused:
        print(refused)
    print((matrix @ matrix).sum().item())
    print(dict(metric_global("cpu_fallback").stats()))
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_a_fallback_is_counted_by_operator(script, lazy):
    values, product, stats = script(PROGRAM, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()
    assert (values, product) == ("3.0", "3.0")
    counted = eval(stats)
    assert counted["FallbackOps"] == {"aten::_linalg_eigvals": 1}
    assert counted["TotalNumber"] == 1


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize("allowed", ["none", "nonzero,unique"])
def test_a_forbidden_fallback_raises_the_vendors_error(script, lazy, allowed):
    refusal, product, stats = script(
        PROGRAM, simulated=True, PT_HPU_LAZY_MODE=lazy, PT_HPU_PLACE_ON_CPU=allowed
    ).splitlines()
    assert refusal == "aten::_linalg_eigvals is not yet supported on HPU."
    assert product == "3.0"
    assert eval(stats)["TotalNumber"] == 0


def test_a_named_operator_may_fall_back(script):
    values, _, _ = script(
        PROGRAM, simulated=True, PT_HPU_PLACE_ON_CPU="_linalg_eigvals,nonzero"
    ).splitlines()
    assert values == "3.0"
