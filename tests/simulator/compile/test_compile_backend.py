"""When hpu_backend is there, what it is told, and that Dynamo knows the device."""

import pytest


def test_settings_apply_to_one_compilation_and_unknown_ones_are_refused(torch, compile_on_hpu):
    from habana_frameworks.torch.dynamo.compile_backend.config import configuration_flags

    x = torch.ones(2, device="hpu")
    compiled = compile_on_hpu(lambda x: x + 1, options={"decomposition_mode": "core_aten"})
    assert compiled(x).tolist() == [2.0, 2.0]
    assert configuration_flags["decomposition_mode"] == "habana"
    with pytest.raises(Exception, match="'no_such' is no setting of hpu_backend"):
        compile_on_hpu(lambda x: x + 2, options={"no_such": 1})(x)


def test_settings_come_from_the_environment(forked_script):
    out = forked_script(
        """
        import torch
        from habana_frameworks.torch.dynamo.compile_backend.config import configuration_flags
        print(configuration_flags["use_boxed_input"], configuration_flags["enable_sfg"])
        """,
        simulated=True,
        PT_HPU_USE_BOXED_INPUT="off",
        PT_HPU_ENABLE_SFG="Yes",
    )
    assert out == "False True\n"


def test_lazy_mode_has_no_compile_backend(forked_script):
    out = forked_script(
        """
        import torch
        import torch._dynamo
        print("hpu_backend" in torch._dynamo.list_backends())
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert out == "False\n"


def test_dynamo_loads_only_for_those_who_compile(script):
    out = script(
        """
        import sys
        import torch
        print("torch._dynamo" in sys.modules)
        import torch._dynamo
        print("hpu_backend" in torch._dynamo.list_backends())
        """,
        simulated=True,
    )
    assert out == "False\nTrue\n"


def test_dynamo_knows_the_device(torch):
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("hpu")
    assert interface.is_available()
    assert interface.current_device() == 0
    assert interface.is_bf16_supported()
