"""Test that PyTorch's device-generic tests can be generated for hpu and run."""

import unittest

import pytest
import torch
from habana_frameworks.torch.utils.internal import is_lazy
from operator_samples import quick_samples
from torch.testing._internal import common_device_type, common_utils
from torch.testing._internal.common_device_type import HPUTestBase, instantiate_device_type_tests
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules

SOME_OPERATORS = [op for op in op_db if op.name in {"add", "cumsum", "index_select", "softmax"}]
SOME_MODULES = [info for info in module_db if info.name in {"nn.Linear", "nn.GELU", "nn.LSTMCell"}]


def generated(*classes):
    """Return the test classes that PyTorch generates for hpu, by name."""
    scope = {each.__name__: each for each in classes}
    for each in classes:
        instantiate_device_type_tests(each, scope, only_for="hpu")
    return scope


def outcomes(test_class):
    """Run a class's tests and return the outcome of each by name."""
    result = unittest.TestResult()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(test_class)
    names = [test._testMethodName for test in suite]
    with quick_samples():
        suite.run(result)
    found = dict.fromkeys(names, "passed")
    for test, report in (*result.failures, *result.errors):
        found[test._testMethodName] = report
    for test, _ in result.skipped:
        found[test._testMethodName] = "skipped"
    return found


@pytest.fixture(scope="module", autouse=True)
def default_settings():
    """PyTorch's test classes change the default dtype and the random state."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_default_dtype(dtype)


def test_devices_and_dtypes_become_arguments():
    seen = []

    class TestArguments(common_utils.TestCase):
        def test_device(self, device):
            seen.append((device, torch.ones(2, device=device).device.type))

        @common_device_type.dtypes(torch.float32)
        @common_device_type.dtypesIfHPU(torch.float32, torch.bfloat16)
        def test_dtype(self, device, dtype):
            seen.append((device, torch.ones(2, device=device, dtype=dtype).dtype))

    scope = generated(TestArguments)
    assert sorted(scope) == ["TestArgumentsHPU"]
    assert issubclass(scope["TestArgumentsHPU"], HPUTestBase)
    assert outcomes(scope["TestArgumentsHPU"]) == {
        "test_device_hpu": "passed",
        "test_dtype_hpu_bfloat16": "passed",
        "test_dtype_hpu_float32": "passed",
    }
    assert seen == [("hpu:0", "hpu"), ("hpu:0", torch.bfloat16), ("hpu:0", torch.float32)]


def test_decorators_select_tests_for_the_device():
    class TestSelection(common_utils.TestCase):
        @common_device_type.onlyHPU
        def test_only(self, device):
            self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

        @common_device_type.onlyCUDA
        def test_only_cuda(self, device):
            self.fail("not a CUDA device")

        @common_device_type.expectedFailure("hpu")
        def test_expected(self, device):
            self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

        @common_utils.skipIfHpu
        def test_skipped_if(self, device):
            self.fail("skipped if a card is available")

    assert outcomes(generated(TestSelection)["TestSelectionHPU"]) == {
        "test_only_hpu": "passed",
        "test_only_cuda_hpu": "skipped",
        "test_expected_hpu": "passed",  # PyTorch's decorator catches the failure
        "test_skipped_if_hpu": "skipped",
    }


def test_comparisons_of_tensors_on_the_device_fail_with_pytorchs_report():
    class TestComparison(common_utils.TestCase):
        def test_same(self, device):
            values = torch.randn(3, 4)
            self.assertEqual(values.to(device) * 2, values * 2)

        @common_device_type.toleranceOverride({torch.float32: common_device_type.tol(1e-1, 0)})
        @common_device_type.dtypes(torch.float32)
        def test_within_tolerance(self, device, dtype):
            self.assertEqual(torch.full((2,), 1.05, device=device, dtype=dtype), torch.ones(2))

        def test_different(self, device):
            self.assertEqual(torch.tensor([1.0, 3.0], device=device), torch.tensor([1.0, 2.0]))

    found = outcomes(generated(TestComparison)["TestComparisonHPU"])
    report = found.pop("test_different_hpu")
    assert "Mismatched elements: 1 / 2 (50.0%)" in report
    assert found == {"test_same_hpu": "passed", "test_within_tolerance_hpu_float32": "passed"}


def test_operator_database_runs_on_the_device():
    class TestOperators(common_utils.TestCase):
        @common_device_type.ops(SOME_OPERATORS, allowed_dtypes=(torch.float32, torch.int64))
        def test_matches_cpu(self, device, dtype, op):
            for sample in op.sample_inputs(device, dtype):
                result = op(sample.input, *sample.args, **sample.kwargs)
                self.assertEqual(result.device.type, "hpu")
                host = sample.transform(lambda x: x.cpu() if isinstance(x, torch.Tensor) else x)
                self.assertEqual(result, op(host.input, *host.args, **host.kwargs))

    found = outcomes(generated(TestOperators)["TestOperatorsHPU"])
    assert {*found.values()} == {"passed"}
    for op in SOME_OPERATORS:
        assert f"test_matches_cpu_{op.formatted_name}_hpu_float32" in found
    assert "test_matches_cpu_index_select_hpu_int64" in found


def test_module_database_runs_on_the_device():
    class TestModules(common_utils.TestCase):
        @modules(SOME_MODULES, allowed_dtypes=(torch.float32,))
        def test_backward(self, device, dtype, module_info, training):
            inputs = module_info.module_inputs_func(
                module_info, device=device, dtype=dtype, requires_grad=True, training=training
            )
            for each in inputs:
                arguments, named = each.constructor_input.args, each.constructor_input.kwargs
                module = module_info.module_cls(*arguments, **named).to(device, dtype)
                output = module(*each.forward_input.args, **each.forward_input.kwargs)
                first = output[0] if isinstance(output, tuple) else output
                first.sum().backward()
                for parameter in module.parameters():
                    self.assertEqual(parameter.grad.device.type, "hpu")

    found = outcomes(generated(TestModules)["TestModulesHPU"])
    assert {*found.values()} == {"passed"}
    assert len(found) >= len(SOME_MODULES)


def test_distributed_tests_find_the_backend_and_the_cards():
    from torch.testing._internal import common_distributed

    assert HPUTestBase.distributed_backend() == "hccl"
    assert common_distributed.TEST_HPU
    assert common_distributed.HAS_ACCELERATOR
    assert common_distributed.at_least_x_gpu(torch.hpu.device_count())


@pytest.mark.skipif(is_lazy(), reason="compiled code runs only in eager mode")
def test_generic_tests_of_compiled_code_run_on_the_device():
    class TestCompiled(common_utils.TestCase):
        def test_compiled(self, device):
            compiled = torch.compile(lambda x: (x * 2 + 1).relu(), backend="hpu_backend")
            values = torch.randn(5)
            self.assertEqual(compiled(values.to(device)), (values * 2 + 1).relu())

    found = outcomes(generated(TestCompiled)["TestCompiledHPU"])
    assert found == {"test_compiled_hpu": "passed"}
