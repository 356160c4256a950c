"""Test settings and registration of hpu_backend, and the device interface of Dynamo."""

import pytest


def test_options_apply_to_one_compilation_and_unknown_ones_are_rejected(torch, compile_on_hpu):
    from habana_frameworks.torch.dynamo.compile_backend.config import configuration_flags

    x = torch.ones(2, device="hpu")
    compiled = compile_on_hpu(lambda x: x + 1, options={"decomposition_mode": "core_aten"})
    assert compiled(x).tolist() == [2.0, 2.0]
    assert configuration_flags["decomposition_mode"] == "habana"
    with pytest.raises(Exception, match="'no_such' is not a setting of hpu_backend"):
        compile_on_hpu(lambda x: x + 2, options={"no_such": 1})(x)


@pytest.mark.parametrize("mode", ["none", "core_aten", "inductor"])
def test_every_decomposition_mode_gives_the_same_results(torch, compile_on_hpu, mode):
    def f(x):
        return torch.nn.functional.gelu(x, approximate="tanh").softmax(-1) + torch.addmm(x, x, x)

    x = torch.linspace(-1, 1, 16, device="hpu").view(4, 4)
    leaves = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    actual = compile_on_hpu(f, options={"decomposition_mode": mode})(leaves[0])
    expected = f(leaves[1])
    actual.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def test_every_documented_decomposition_mode_is_accepted(forked_script):
    out = forked_script(
        """
        from hpu_magic.runtime.execution.flags import documented
        import torch
        from habana_frameworks.torch.dynamo.compile_backend import config
        documented = documented()["PT_HPU_COMPILE_DECOMPOSITION_MODE"].choices()
        print(config.configuration_flags["decomposition_mode"], sorted(documented))
        print(sorted(config._DECOMPOSITIONS))
        """,
        simulated=True,
        PT_HPU_COMPILE_DECOMPOSITION_MODE="inductor",
    )
    assert out.splitlines() == [
        "inductor ['core_aten', 'habana', 'inductor', 'none']",
        "['core_aten', 'habana', 'inductor', 'none']",
    ]


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


def test_lazy_mode_lists_the_backend_and_rejects_compilation(forked_script):
    out = forked_script(
        """
        import torch
        import torch._dynamo

        @torch.compile(backend="hpu_backend")
        def decorated(x):
            return x + 1

        print("hpu_backend" in torch._dynamo.list_backends())
        x = torch.ones(2, device="hpu", requires_grad=True)
        for call in (decorated, torch.compile(torch.nn.ReLU(), backend="hpu_backend")):
            try:
                call(x)
            except RuntimeError as error:
                print("this process is in lazy mode; set PT_HPU_LAZY_MODE=0" in str(error))
        print((x + 1).tolist())
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    assert out == "True\nTrue\nTrue\n[2.0, 2.0]\n"


def test_dynamo_is_not_imported_with_torch(script):
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


def test_dynamo_has_an_interface_of_the_device(torch):
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("hpu")
    assert interface.is_available()
    assert interface.current_device() == 0
    assert interface.is_bf16_supported()
