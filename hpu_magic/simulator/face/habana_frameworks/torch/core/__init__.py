"""Step marks, inference, and the bridge's changes to PyTorch's random number functions."""

import os

from . import _random
from .inference import (
    hpu_inference_initialize,
    hpu_initialize,
    hpu_reset_env,
    hpu_set_env,
    hpu_set_inference_env,
    hpu_teardown_inference_env,
)
from .step_closure import add_step_closure, iter_mark_step, mark_step

_random.install()
os.environ.setdefault("HABANA_PROFILE", "profile_api_light")

__all__ = [
    "add_step_closure",
    "hpu_inference_initialize",
    "hpu_initialize",
    "hpu_reset_env",
    "hpu_set_env",
    "hpu_set_inference_env",
    "hpu_teardown_inference_env",
    "iter_mark_step",
    "mark_step",
]
