"""Test flags that a running process can change."""

import pytest
import torch
from habana_frameworks.torch.internal import bridge_config
from habana_frameworks.torch.utils.internal import is_lazy


def test_kernels_do_not_run_in_compile_only_mode():
    kept = torch.ones(2, 3, device="hpu")
    with bridge_config.env_setting("PT_COMPILE_ONLY_MODE", True):
        assert bridge_config.get_pt_compile_only_mode()
        product = (kept + 1) @ torch.full((3, 4), 5.0, device="hpu")
        kept.add_(1)
        assert product.cpu().tolist() == [[0.0] * 4] * 2
    assert not bridge_config.get_pt_compile_only_mode()
    assert kept.cpu().tolist() == [[1.0] * 3] * 2
    assert (kept + 1).cpu().tolist() == [[2.0] * 3] * 2


@pytest.mark.skipif(is_lazy(), reason="compiled code needs eager mode")
def test_compiled_code_returns_zeros():
    def step(x):
        return torch.relu(x @ x) + 3

    compiled = torch.compile(step, backend="hpu_backend", fullgraph=True)
    x = torch.ones(2, 2, device="hpu")
    with bridge_config.env_setting("PT_COMPILE_ONLY_MODE", True):
        assert compiled(x).cpu().tolist() == [[0.0] * 2] * 2
    assert compiled(x).cpu().tolist() == [[5.0] * 2] * 2


def test_values_are_copied_in_compile_only_mode():
    with bridge_config.env_setting("PT_COMPILE_ONLY_MODE", True):
        moved = torch.tensor([3.0, 4.0]).to("hpu")
        assert torch.full((2,), 7.0, device="hpu").cpu().tolist() == [0.0, 0.0]
    assert moved.cpu().tolist() == [3.0, 4.0]


def test_mode_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), bridge_config.env_setting("PT_COMPILE_ONLY_MODE", "1"):
        raise ZeroDivisionError
    assert not bridge_config.get_pt_compile_only_mode()


def test_unknown_flag_is_a_key_error():
    with pytest.raises(KeyError, match="PT_HPU_NO_FLAG"):
        bridge_config.env_setting("PT_HPU_NO_FLAG", True).__enter__()


SCRIPT = """
import torch
print(((torch.ones(2, device="hpu") + 1) * 3).cpu().tolist())
"""


@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_environment_variable_sets_the_mode(forked_script, lazy):
    printed = forked_script(SCRIPT, simulated=True, PT_HPU_LAZY_MODE=lazy, PT_COMPILE_ONLY_MODE="1")
    assert printed.splitlines()[-1] == "[0.0, 0.0]"
