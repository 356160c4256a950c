"""Simulated version of the vendor's PyTorch bridge; importing it registers the ``hpu`` device."""

import importlib

from habana_frameworks.torch import _bridge, _flags

import torch

_bridge.load()

from habana_frameworks.torch import (  # noqa: E402
    _fallback_log,
    _import_hooks,
    activity_profiler,
    core,
    hpu,
    hw_utilization_metric,
    internal,
    profiler,
    utils,
)
from habana_frameworks.torch._optimizers import overwrite_torch_optimizers  # noqa: E402
from habana_frameworks.torch.distributed import hccl  # noqa: E402


def _register_with_dynamo() -> None:
    for part in ("device_interface", "fake_kernels", "compile_backend.backends"):
        importlib.import_module(f"habana_frameworks.torch.dynamo.{part}").register()


# Register even in lazy mode, because scripts may import modules that define compiled functions. In
# lazy mode, only a call to such a function raises an error.
_import_hooks.when_imported("torch._dynamo", _register_with_dynamo)
_fallback_log.install()
activity_profiler.install()
if _flags.is_on("PT_HPU_REPLACE_ADAM_ADAMW"):
    overwrite_torch_optimizers()
if _flags.is_on("PT_COMPILE_ONLY_MODE"):
    importlib.import_module("habana_frameworks.torch.internal.bridge_config")
if _flags.is_on("PT_HPU_GPU_MIGRATION"):
    importlib.import_module("habana_frameworks.torch.gpu_migration")
