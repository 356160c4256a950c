"""Operators and dtypes that first-generation cards do not support."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree

NO_FP8 = (
    "FP8 needs a GAUDI2 or later card, but this card is GAUDI; use bfloat16 with "
    "torch.autocast('hpu')."
)
_NO_FLOAT16 = "float16 needs a GAUDI2 or later card, but this card is GAUDI; use bfloat16."
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_KEY = torch._C.DispatchKey.BackendSelect
_BELOW = torch._C._dispatch_keyset_full_after(_KEY)
_AUTOCAST_TYPES = "HPU Autocast on GAUDI only supports dtypes of torch.bfloat16 currently."

# Error messages, keyed by the C++ names of the dtypes.
LACKING_TYPES = {"Half": _NO_FLOAT16, "Float8_e4m3fn": NO_FP8, "Float8_e5m2": NO_FP8}

# Keep the libraries alive: a library unregisters its kernels when it is freed.
_libraries: list[torch.library.Library] = []
_float16_refused = False


def refuse_operators() -> None:
    """Make ``torch.ops.hpu`` reject operators and dtypes that the card does not support.

    The check runs before dispatch to a backend, so it also applies in lazy mode and in inference
    mode.
    """
    library = torch.library.Library("hpu", "IMPL")
    _libraries.append(library)
    for full_name in torch._C._dispatch_get_all_op_names():
        if not full_name.startswith("hpu::"):
            continue
        name = full_name.removeprefix("hpu::")
        reason = _reason_against(name.partition(".")[0])
        if reason is not None:
            library.impl(name, functools.partial(_refuse, reason), _KEY.name)
        else:
            library.impl(name, _checking_types(_overload(name)), _KEY.name, with_keyset=True)


def _reason_against(name: str) -> str | None:
    """Return why the card does not support an operator, or None if it is supported."""
    if "fp8" in name:
        return f"torch.ops.hpu.{name}: {NO_FP8}"
    for part, feature, substitute in (
        ("sdpa", "fused attention", "torch.nn.functional.scaled_dot_product_attention"),
        ("mixture_of_experts", "the fused mixture of experts", "a loop over the experts"),
        ("int4", "unpacking 4-bit integers", "bfloat16"),
    ):
        if part in name:
            return (
                f"torch.ops.hpu.{name}: {feature} needs a GAUDI2 or later card, but this card is "
                f"GAUDI; use {substitute}."
            )
    return None


def _refuse(reason: str, *args: Any, **kwargs: Any) -> None:
    raise RuntimeError(reason)


def _overload(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.hpu, base), overload or "default")


def _checking_types(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    def checked(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        for leaf in _pytree.tree_leaves((args, kwargs)):
            dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
            if dtype in _FP8 or dtype is torch.float16:
                raise RuntimeError(
                    f"torch.ops.{operator}: {NO_FP8 if dtype in _FP8 else _NO_FLOAT16}"
                )
        return operator.redispatch(keys & _BELOW, *args, **kwargs)

    return checked


def refuse_float16_in_autocast() -> None:
    """Make ``torch.autocast("hpu", dtype=torch.float16)`` warn and disable itself.

    PyTorch has a single list of autocast dtypes for all generations of ``hpu``. The warning is the
    same as the one that PyTorch shows for a dtype that is not in this list.
    """
    global _float16_refused
    _float16_refused = True
    autocast = torch.amp.autocast_mode.autocast
    initialize = autocast.__init__

    @functools.wraps(initialize)
    def wrapper(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        if self._enabled and self.device == "hpu" and self.fast_dtype == torch.float16:
            warnings.warn(
                "In HPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                + _AUTOCAST_TYPES,
                stacklevel=2,
            )
            self._enabled = False

    autocast.__init__ = wrapper


def refuses_autocast_type(dtype: torch.dtype) -> bool:
    """Return whether autocast does not support `dtype` on this card, and warn if so."""
    if not (_float16_refused and dtype == torch.float16):
        return False
    warnings.warn(
        f"In HPU autocast, but the target dtype {dtype} is not supported; keeping "
        f"{torch.get_autocast_dtype('hpu')}.\n" + _AUTOCAST_TYPES,
        stacklevel=3,
    )
    return True
