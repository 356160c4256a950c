"""Bytes per element on a card, which stores some 64-bit types in 32 bits."""

from __future__ import annotations

import os
from typing import Any

from hpu_magic.runtime.device import device as devices


def width(dtype: Any) -> int:
    """Return the bytes of one element of a torch dtype on a card.

    Cards do not support float64 and complex128. They support int64 in eager mode from the second
    generation on, and otherwise with ``PT_ENABLE_INT64_SUPPORT``.
    """
    torch = devices.torch_with_hpu()
    narrow = dtype in (torch.float64, torch.complex128)
    if narrow or (dtype == torch.int64 and not _has_int64()):
        return int(dtype.itemsize) // 2
    return int(dtype.itemsize)


def _has_int64() -> bool:
    from habana_frameworks.torch.utils.internal import is_lazy

    if os.environ.get("PT_ENABLE_INT64_SUPPORT", "").strip().lower() in ("1", "true", "yes", "on"):
        return True
    return not is_lazy() and devices.generation() != "GAUDI"
