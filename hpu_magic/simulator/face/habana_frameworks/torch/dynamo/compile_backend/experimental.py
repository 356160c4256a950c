"""Compiled autograd, which captures each backward pass as a single graph."""

from __future__ import annotations

import contextlib
from typing import Any

from habana_frameworks.torch import _flags

import torch

_enabled = contextlib.ExitStack()


def enable_compiled_autograd(**kwargs: Any) -> None:
    """Capture each backward pass in this process as it runs, and compile the resulting graph.

    `kwargs` are passed to `torch.compile`; the default backend is ``hpu_backend``.
    """
    from torch._dynamo import compiled_autograd

    compiler = torch.compile(**{"backend": "hpu_backend", **kwargs})
    torch._dynamo.config.compiled_autograd = True  # keeps backward graphs traceable
    _enabled.close()
    _enabled.enter_context(compiled_autograd._enable(compiler))


def enable_if_flag_is_set() -> None:
    """Enable compiled autograd if ``PT_HPU_ENABLE_COMPILED_AUTOGRAD`` is on."""
    if _flags.is_on("PT_HPU_ENABLE_COMPILED_AUTOGRAD"):
        enable_compiled_autograd()
