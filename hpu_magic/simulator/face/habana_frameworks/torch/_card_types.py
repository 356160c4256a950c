"""FP8 limits of the cards, and the 64-bit dtypes that cards store in 32 bits."""

from __future__ import annotations

from typing import NamedTuple

from habana_frameworks.torch import _flags

import torch

GAUDI2_E4M3FN_MAX = 240.0
E4M3FN_MAX = {"GAUDI": GAUDI2_E4M3FN_MAX, "GAUDI2": GAUDI2_E4M3FN_MAX, "GAUDI3": 448.0}
E5M2_MAX = torch.finfo(torch.float8_e5m2).max

EXACT = "HPU_MAGIC_EXACT_64_BIT"
"""Environment variable that makes simulated cards keep all 64 bits, unlike real cards."""


class NarrowTypes(NamedTuple):
    """64-bit dtypes stored in 32 bits, and whether copies from the host check the value range."""

    float64: bool
    int64: bool
    check_range: bool


def narrow_types(*, lazy: bool, generation: str) -> NarrowTypes:
    """Return the dtypes that a card of `generation` stores in 32 bits.

    No card supports float64. All cards support int64 if ``PT_ENABLE_INT64_SUPPORT`` is set; without
    it, only second-generation and later cards do, and only in eager mode. In lazy mode, a copy from
    the host raises an error if a value does not fit into 32 bits, unless
    ``PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK`` is off.
    """
    exact = _flags.is_on(EXACT)
    has_int64 = _flags.is_on("PT_ENABLE_INT64_SUPPORT") or not (lazy or generation == "GAUDI")
    return NarrowTypes(
        float64=not exact,
        int64=not exact and not has_int64,
        check_range=lazy and _flags.is_on("PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK", default=True),
    )
