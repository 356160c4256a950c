"""What cards of the first generation lack: operators of the vendor's, and types in the others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

NO_FP8 = (
    "8-bit floating point needs a card of the second generation or a later one, and this is GAUDI: "
    "compute in bfloat16, under torch.autocast('hpu')."
)
_NO_FLOAT16 = (
    "float16 needs a card of the second generation or a later one, and this is GAUDI: use bfloat16."
)
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_KEY = torch._C.DispatchKey.BackendSelect
_BELOW = torch._C._dispatch_keyset_full_after(_KEY)

# By their names in C++.
LACKING_TYPES = {"Half": _NO_FLOAT16, "Float8_e4m3fn": NO_FP8, "Float8_e5m2": NO_FP8}

# Libraries take their kernels with them.
_libraries: list[torch.library.Library] = []


def refuse_operators() -> None:
    """Refuse the operators of ``torch.ops.hpu`` that the card lacks, and types in the others.

    Before a backend's kernel is looked up, for both modes alike and for inference too.
    """
    library = torch.library.Library("hpu", "IMPL")
    _libraries.append(library)
    for full_name in torch._C._dispatch_get_all_op_names():
        if not full_name.startswith("hpu::"):
            continue
        name = full_name.removeprefix("hpu::")
        lacking = _lacking(name.partition(".")[0])
        if lacking is not None:
            library.impl(name, functools.partial(_refuse, lacking), _KEY.name)
        else:
            library.impl(name, _with_types(_overload(name)), _KEY.name, with_keyset=True)


def _lacking(name: str) -> str | None:
    """Why the card has no such operator."""
    if "fp8" in name:
        return f"torch.ops.hpu.{name}: {NO_FP8}"
    for part, what, instead in (
        ("sdpa", "fused attention", "torch.nn.functional.scaled_dot_product_attention"),
        ("mixture_of_experts", "the fused mixture of experts", "a loop over the experts"),
        ("int4", "unpacking 4-bit integers", "bfloat16"),
    ):
        if part in name:
            return (
                f"torch.ops.hpu.{name}: {what} needs a card of the second generation or a later "
                f"one, and this is GAUDI: use {instead}."
            )
    return None


def _refuse(lacking: str, *args: Any, **kwargs: Any) -> None:
    raise RuntimeError(lacking)


def _overload(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops.hpu, base), overload or "default")
    return found


def _with_types(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    def checked(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        for given in _pytree.tree_leaves((args, kwargs)):
            dtype = given.dtype if isinstance(given, torch.Tensor) else given
            if dtype in _FP8 or dtype is torch.float16:
                raise RuntimeError(
                    f"torch.ops.{operator}: {NO_FP8 if dtype in _FP8 else _NO_FLOAT16}"
                )
        return operator.redispatch(keys & _BELOW, *args, **kwargs)

    return checked
