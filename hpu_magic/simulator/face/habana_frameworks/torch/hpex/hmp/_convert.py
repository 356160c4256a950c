"""Make PyTorch's functions cast their inputs, according to the rules of HMP."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from habana_frameworks.torch import _operator_lists
from habana_frameworks.torch._replacements import as_replacement
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
    """Make PyTorch's functions compute in bfloat16 or float32 on the device, based on op lists.

    Call this function once before training; a second call replaces the lists. In all threads, the
    functions of ``torch``, ``torch.nn.functional`` and ``torch.Tensor`` then convert float32 and
    bfloat16 arguments that are tensors on the device.

    An operator that is in a list computes in that list's dtype. Other operators with several
    tensors (``add``, ``cat``, ...) compute in the widest dtype, and all remaining operators in the
    dtype of their first input. In-place operators and out= variants always compute in the dtype of
    the tensor that they write to. If no list contains ``linear`` or ``matmul``, the rule for
    ``addmm`` or ``mm`` applies. TorchScript compiles the original functions, so scripted code does
    not cast its inputs.

    Parameters
    ----------
    opt_level : {"O1", "O2"}
        O1 uses the lists; O2 computes matmuls and convolutions in bfloat16 and all other operators
        in float32.
    bf16_file_path, fp32_file_path : str
        Files that replace the O1 lists, with one operator name per line.
    isVerbose : bool
        Log the dtype of each call, and the reason, to ``habana_frameworks.torch.hpex.hmp``.

    Raises
    ------
    ValueError
        The level does not exist, a file cannot be read, a line is not an operator name, or an
        operator is in both lists.
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
            function.replace(as_replacement(_casting(function), function.original, function.path))


@contextlib.contextmanager
def disable_casts() -> Iterator[None]:
    """Disable casts in this thread inside the ``with`` block, for example in an optimizer step.

    Inside the block, cast tensors explicitly, for example with ``.float()``.
    """
    _thread.disabled += 1
    try:
        yield
    finally:
        _thread.disabled -= 1


def _requested(level: str, bf16_file: str, fp32_file: str) -> Rules:
    if level in ("O2", "02"):  # some scripts use a zero instead of the letter O
        return Rules(PRODUCTS, frozenset(), all_others_fp32=True)
    if level not in ("O1", "01"):
        raise ValueError(f"opt_level={level!r} is not supported; use 'O1' (op lists) or 'O2'.")
    bf16 = _from_file("bf16_file_path", bf16_file, BF16)
    fp32 = _from_file("fp32_file_path", fp32_file, FP32)
    # Operators in a file are also removed from the other list if that list is the default one.
    if bf16_file and not fp32_file:
        fp32 -= bf16
    elif fp32_file and not bf16_file:
        bf16 -= fp32
    if both := sorted(bf16 & fp32):
        raise ValueError(
            f"{', '.join(both)} cannot be in both lists, {bf16_file} and {fp32_file}; "
            "remove it from one of them."
        )
    return Rules(bf16, fp32)


def _from_file(argument: str, path: str, default: frozenset[str]) -> frozenset[str]:
    if not path:
        return default
    try:
        return frozenset(_operator_lists.read(path))
    except OSError as unreadable:
        raise ValueError(
            f"{argument}={path!r} cannot be read ({unreadable.strerror}); use a file with one "
            "operator per line, or an empty path for the default list."
        ) from unreadable


def _casting(function: Function) -> Callable[..., Any]:
    original = function.original

    @functools.wraps(original)
    def casting(*args: Any, **kwargs: Any) -> Any:
        tensors = _tensors((*args, *kwargs.values()))
        if has_torch_function(tensors):  # overrides receive this replacement as `func`
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
        cast = [value if at in kept else _cast(value, dtype) for at, value in enumerate(args)]
        keywords = {
            name: value if name in kept else _cast(value, dtype) for name, value in kwargs.items()
        }
        result = original(*cast, **keywords)
        for at in function.written_places:
            if at < len(args):
                _copy_back(cast[at], args[at])
        for name in function.written_names & kwargs.keys():
            _copy_back(keywords[name], kwargs[name])
        return result

    return casting


def _is_cast(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _CAST and value.device.type == "hpu"


def _tensors(values: Iterable[Any]) -> list[Any]:
    """Return all arguments that are tensors or override functions, including those in lists."""
    tensors: list[Any] = []
    for value in values:
        if type(value) in (list, tuple):
            tensors += _tensors(value)
        elif type(value) not in _PLAIN:
            tensors.append(value)
    return tensors


def _types(values: Iterable[Any]) -> list[torch.dtype]:
    return [value.dtype for value in _tensors(values) if _is_cast(value)]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_cast(each, dtype) for each in value)
    return _to(value, dtype) if _is_cast(value) and value.dtype != dtype else value


def _copy_back(copy: Any, argument: Any) -> None:
    """Copy what a function wrote to the cast copy of an argument back to the argument."""
    if copy is not argument:
        with torch.no_grad():
            argument.copy_(copy)


_to = torch.Tensor.to
