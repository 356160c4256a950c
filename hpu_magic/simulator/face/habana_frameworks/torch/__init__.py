"""The simulator's form of the vendor's PyTorch bridge: importing it loads the device."""

import importlib

from habana_frameworks.torch import _bridge, _flags

import torch

_bridge.load()

from habana_frameworks.torch import (  # noqa: E402
    _dynamo_registration,
    _fallback_log,
    _optimizers,
    activity_profiler,
    core,
    hpu,
    hw_utilization_metric,
    profiler,
    utils,
)
from habana_frameworks.torch._optimizers import overwrite_torch_optimizers  # noqa: E402
from habana_frameworks.torch.distributed import hccl  # noqa: E402
from habana_frameworks.torch.utils import internal  # noqa: E402

_dynamo_registration.install()
_fallback_log.install()
activity_profiler.install()
_optimizers.overwrite_if_asked()
if _flags.is_on("PT_HPU_GPU_MIGRATION"):
    importlib.import_module("habana_frameworks.torch.gpu_migration")

__all__ = [
    "activity_profiler",
    "core",
    "distributed",
    "hpu",
    "hw_utilization_metric",
    "overwrite_torch_optimizers",
    "profiler",
    "torch",
    "utils",
]
