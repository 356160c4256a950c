"""Explain why ``torch.ops.hpu`` does not have an operator."""

from __future__ import annotations

from typing import Any

import torch


class _Namespace(torch._ops._OpNamespace):
    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as missing:
            if name.startswith("__"):  # Python and PyTorch look up names with double underscores
                raise
            raise AttributeError(
                f"The simulated card has no operator torch.ops.hpu.{name}; the documentation page "
                '"The vendor\'s names" lists its operators and explains why others are missing.'
            ) from missing


def install() -> None:
    """Replace PyTorch's message, which does not mention the simulator."""
    torch.ops.hpu.__class__ = _Namespace
