"""Which 64-bit types a card keeps in 32 bits, by mode, generation and flag."""

from __future__ import annotations

from typing import NamedTuple

from habana_frameworks.torch import _flags

EXACT = "HPU_MAGIC_EXACT_64_BIT"
"""Environment variable that asks for all 64 bits, as no card has them."""


class NarrowTypes(NamedTuple):
    """What the engine asks for: two types, and whether copies from the host are looked through."""

    float64: bool
    int64: bool
    check_range: bool


def of(*, lazy: bool, generation: str) -> NarrowTypes:
    """Return what a card of `generation` keeps in 32 bits.

    No card has float64. int64 is kept whole in eager mode from the second generation on, and
    elsewhere with ``PT_ENABLE_INT64_SUPPORT``. Values that do not fit are refused by lazy mode, on
    their way from the host, unless ``PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK`` is off.
    """
    exact = _flags.is_on(EXACT)
    has_int64 = _flags.is_on("PT_ENABLE_INT64_SUPPORT") or not (lazy or generation == "GAUDI")
    return NarrowTypes(
        float64=not exact,
        int64=not exact and not has_int64,
        check_range=lazy and _flags.is_on("PT_HPU_ENABLE_VALID_DATA_RANGE_CHECK", default=True),
    )
