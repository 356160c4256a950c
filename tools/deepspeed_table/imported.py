"""Import DeepSpeed with the accelerator of the environment, before ranks are forked."""

from __future__ import annotations

import os

import torch

if os.environ["DS_ACCELERATOR"] == "hpu":
    torch._import_device_backends()

import deepspeed  # noqa: F401 (needs the device)
