"""Step marks, inference mode, and changes to PyTorch's random number functions."""

import importlib
import os
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._flags import is_lazy
from habana_frameworks.torch.core import _random, quantization, step_closure
from habana_frameworks.torch.core.quantization import (
    hpu_inference_initialize,
    hpu_inference_set_env,
    hpu_initialize,
    hpu_reset_env,
    hpu_set_env,
    hpu_set_inference_env,
    hpu_teardown_inference_env,
)
from habana_frameworks.torch.core.step_closure import add_step_closure, iter_mark_step, mark_step

_random.install()
os.environ.setdefault("HABANA_PROFILE", "profile_api_light")


def __getattr__(name: str) -> Any:
    if name in ("observer", "quantize_pt2e", "quantizer"):  # slow imports; few scripts need them
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
