"""Makes PyTorch's functions cast their tensors to the type that the rules give."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from habana_frameworks.torch import _operator_lists
from habana_frameworks.torch._stand_ins import put_for
from habana_frameworks.torch.hpex.hmp._functions import Function, functions
from habana_frameworks.torch.hpex.hmp._rules import BF16, FP32, PRODUCTS, Rules

import torch
from torch.overrides import handle_torch_function, has_torch_function

_logger = logging.getLogger("habana_frameworks.torch.hpex.hmp")
_CAST = (torch.float32, torch.bfloat16)
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})
_rules: Rules | None = None
_replaced: set[tuple[Any, str]] = set()
_verbose = False


class _Thread(threading.local):
    disabled = 0


_thread = _Thread()


def convert(
    opt_level: str = "O1",
    bf16_file_path: str = "",
    fp32_file_path: str = "",
    isVerbose: bool = False,
) -> None:
    """Let PyTorch's functions compute in bfloat16 or float32 on the device, as the lists say.

    Called once, before training; called again it puts other lists in force. The functions of
    ``torch``, ``torch.nn.functional`` and ``torch.Tensor`` cast their float32 and bfloat16 tensors
    on the device, whichever thread calls them.

    An operator of a list computes in that list's type. Of the others, those that take several
    tensors (``add``, ``cat``, ...) widen them to the widest, and the rest follow their first input.
    Operators in place, or with an ``out``, follow the tensor that they write, whatever the lists
    say. ``linear`` follows ``addmm``, and ``matmul`` follows ``mm``, where the lists do not name
    them. TorchScript compiles the functions as they are: its code casts nothing.

    Parameters
    ----------
    opt_level : {"O1", "O2"}
        O1 goes by the lists; O2 computes matrix products and convolutions in bfloat16 and all else
        in float32.
    bf16_file_path, fp32_file_path : str
        Files that replace the lists of O1, one operator's name a line.
    isVerbose : bool
        Log the type and the reason of each call, to ``habana_frameworks.torch.hpex.hmp``.

    Raises
    ------
    ValueError
        There is no such level, a file cannot be read or holds something else than names of
        operators, or a name is in both lists.
    """
    global _rules, _verbose
    rules = _requested(opt_level, bf16_file_path, fp32_file_path)
    _rules, _verbose = rules, isVerbose
    if isVerbose:
        _logger.setLevel(logging.INFO)
        if not _logger.hasHandlers():
            _logger.addHandler(logging.StreamHandler())
    for function in functions(rules.bf16 | rules.fp32):
        if (function.owner, function.attribute) not in _replaced:
            _replaced.add((function.owner, function.attribute))
            function.replace(put_for(_casting(function), function.original, function.path))


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Cast nothing in this thread's ``with`` block, such as an optimizer's step.

    What the block computes with has the type that the caller gives it, for example by ``.float()``.
    """
    _thread.disabled += 1
    try:
        yield
    finally:
        _thread.disabled -= 1


def _requested(level: str, bf16_file: str, fp32_file: str) -> Rules:
    if level in ("O2", "02"):  # with a zero it is found in scripts
        return Rules(PRODUCTS, frozenset(), all_others_fp32=True)
    if level not in ("O1", "01"):
        raise ValueError(f"There is no opt_level {level!r}; use 'O1' (the lists) or 'O2'.")
    bf16 = _from_file("bf16_file_path", bf16_file, BF16)
    fp32 = _from_file("fp32_file_path", fp32_file, FP32)
    # A file replaces its own list; what it names leaves the other's default.
    if bf16_file and not fp32_file:
        fp32 -= bf16
    elif fp32_file and not bf16_file:
        bf16 -= fp32
    if both := sorted(bf16 & fp32):
        raise ValueError(
            f"{', '.join(both)} cannot be in both lists, {bf16_file} and {fp32_file}; "
            "leave it in one of them."
        )
    return Rules(bf16, fp32)


def _from_file(argument: str, path: str, default: frozenset[str]) -> frozenset[str]:
    if not path:
        return default
    try:
        return frozenset(_operator_lists.read(path))
    except OSError as unreadable:
        raise ValueError(
            f"{argument}={path!r} cannot be read ({unreadable.strerror}); name a file with one "
            "operator a line, or leave it empty for the default list."
        ) from unreadable


def _casting(function: Function) -> Callable[..., Any]:
    original = function.original

    @functools.wraps(original)
    def casting(*args: Any, **kwargs: Any) -> Any:
        tensors = _tensors((*args, *kwargs.values()))
        if has_torch_function(tensors):  # by the object that is at the function's name
            return handle_torch_function(casting, tensors, *args, **kwargs)
        if _rules is None or _thread.disabled:
            return original(*args, **kwargs)
        inputs = _types([*args, *(value for name, value in kwargs.items() if name != "out")])
        out = kwargs.get("out")
        written = _types([out])
        if not inputs or (out is not None and not written):
            return original(*args, **kwargs)
        in_place = function.writes_first(args, kwargs)
        dtype, why = _rules.dtype(function.name, [*written, *inputs], in_place or out is not None)
        if _verbose:
            _logger.info("%s computes in %s (%s)", function.name, dtype, why)
        if all(each == dtype for each in inputs):
            return original(*args, **kwargs)
        kept = {0, "out"} if in_place else {"out"}
        cast = [value if place in kept else _cast(value, dtype) for place, value in enumerate(args)]
        named = {
            name: value if name in kept else _cast(value, dtype) for name, value in kwargs.items()
        }
        result = original(*cast, **named)
        for place in function.written_places:
            if place < len(args):
                _hand_back(cast[place], args[place])
        for name in function.written_names & kwargs.keys():
            _hand_back(named[name], kwargs[name])
        return result

    return casting


def _is_cast(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _CAST and value.device.type == "hpu"


def _tensors(values: Iterable[Any]) -> list[Any]:
    """What may be a tensor, or stand for one, in arguments and lists among them."""
    found: list[Any] = []
    for value in values:
        if type(value) in (list, tuple):
            found += _tensors(value)
        elif type(value) not in _PLAIN:
            found.append(value)
    return found


def _types(values: Iterable[Any]) -> list[torch.dtype]:
    return [value.dtype for value in _tensors(values) if _is_cast(value)]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_cast(each, dtype) for each in value)
    return _to(value, dtype) if _is_cast(value) and value.dtype != dtype else value


def _hand_back(written: Any, given: Any) -> None:
    """Copy what a function wrote to a cast copy of an argument into the argument."""
    if written is not given:
        with torch.no_grad():
            given.copy_(written)


_to = torch.Tensor.to
