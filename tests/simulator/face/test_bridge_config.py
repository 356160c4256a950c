"""Flags that a running process can change."""

import pytest
from habana_frameworks.torch.internal import bridge_config

FLAG = "PT_COMPILE_ONLY_MODE"


@pytest.mark.parametrize("value", [True, "1", 1], ids=repr)
def test_setting_lasts_for_a_block(value):
    assert not bridge_config.get_pt_compile_only_mode()
    with bridge_config.env_setting(FLAG, value):
        assert bridge_config.get_pt_compile_only_mode()
        with bridge_config.env_setting(FLAG, False):
            assert not bridge_config.get_pt_compile_only_mode()
        assert bridge_config.get_pt_compile_only_mode()
    assert not bridge_config.get_pt_compile_only_mode()


def test_setting_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), bridge_config.env_setting(FLAG, True):
        raise ZeroDivisionError
    assert not bridge_config.get_pt_compile_only_mode()


def test_unknown_flag_is_a_key_error():
    with pytest.raises(KeyError, match="PT_HPU_NO_FLAG cannot be changed in a running process"):
        bridge_config.env_setting("PT_HPU_NO_FLAG", True).__enter__()


def test_environment_variable_is_the_first_setting(forked_script):
    script = """
from habana_frameworks.torch.internal import bridge_config
print(bridge_config.get_pt_compile_only_mode())
"""
    printed = forked_script(script, simulated=True, PT_COMPILE_ONLY_MODE="1")
    assert printed.splitlines()[-1] == "True"
