"""Replace the names in torch.cuda, as listed in ``torch_cuda.tsv``."""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._replacements import named
from habana_frameworks.torch.gpu_migration import _log, emulated
from habana_frameworks.torch.gpu_migration._devices import module_of
from habana_frameworks.torch.gpu_migration._wrapping import type_replacement

import torch
import torch.cuda.comm
from hpu_magic import torch_cuda
from hpu_magic.torch_cuda import MATCH, MISMATCH, MODIFIED

_CUDA = "torch.cuda"


def install() -> None:
    """Replace the names in torch.cuda."""
    hpu.Stream.cuda_stream = property(lambda stream: stream.stream_id)
    for entry in torch_cuda.names():
        owner, name = _owner(entry.name)
        original = getattr(owner, name, None)
        if original is None or entry.counterpart == "as it is":
            continue
        replacement = _replacement(entry, original)
        if replacement is not None:
            _replace_everywhere(name, original, replacement)


def _owner(name: str) -> tuple[Any, str]:
    module, _, last = name.rpartition(".")
    if not module:
        return torch.cuda, last
    try:
        return importlib.import_module(f"{_CUDA}.{module}"), last
    except ModuleNotFoundError:  # this release does not have the module
        return None, last


def _replace_everywhere(name: str, original: Any, replacement: Any) -> None:
    """Replace an attribute in all modules of torch.cuda and in ``torch.nn.parallel.comm``."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith((_CUDA, "torch.nn.parallel.comm")) and (
            getattr(module, name, None) is original
        ):
            setattr(module, name, replacement)


def _replacement(entry: torch_cuda.CudaName, original: Any) -> Any:
    full = f"{_CUDA}.{entry.name}"
    if entry.category == MISMATCH:
        return _without_counterpart(entry, full, original)
    if entry.category == MODIFIED:
        counterpart = getattr(emulated, entry.name.replace(".", "_"))
        became = entry.why
    else:
        counterpart = _find(entry.counterpart)
        became = entry.counterpart
        if not callable(counterpart):
            return counterpart
        if entry.counterpart.startswith("torch.amp."):
            return _of_the_card(full, counterpart, became)
    if isinstance(counterpart, type):
        if counterpart.__module__ == "torch.hpu" or issubclass(counterpart, BaseException):
            return counterpart  # arguments of typed tensors and exceptions are not mapped
        construct = _logged(entry.category, full, became, counterpart)
        return type_replacement(counterpart, construct, full)
    call = _logged(entry.category, full, became, counterpart)
    return named(functools.wraps(counterpart)(call), full)


def _find(path: str) -> Any:
    value: Any = torch
    for part in path.split(".")[1:]:
        value = getattr(value, part)
    return value


def _logged(kind: str, name: str, became: str, function: Callable[..., Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        _log.note(kind, name, args, kwargs, became)
        mapped = [module_of(value) for value in args]
        return function(*mapped, **{key: module_of(value) for key, value in kwargs.items()})

    return call


def _of_the_card(name: str, counterpart: Any, became: str) -> Any:
    """Bind a function or class of ``torch.amp`` to the card."""
    if isinstance(counterpart, type):
        bound = functools.partial(counterpart, "hpu")
        return type_replacement(counterpart, _logged(MATCH, name, became, bound), name)
    bound = functools.partial(counterpart, device_type="hpu")
    call = _logged(MATCH, name, became, bound)
    return named(functools.wraps(counterpart)(call), name)


def _without_counterpart(entry: torch_cuda.CudaName, name: str, original: Any) -> Any:
    if entry.counterpart == "raises":
        became = "RuntimeError"

        def act() -> Any:
            raise RuntimeError(f"{name} has no counterpart on the card. {entry.why}")
    elif entry.counterpart == "range":
        became, act = "no effect", emulated.nothing
    else:
        dummy = entry.counterpart
        became = "no effect" if dummy == "None" else f"dummy value {dummy}"

        def act() -> Any:
            return ast.literal_eval(dummy)  # a new object, because callers may modify it

    def call(*args: Any, **kwargs: Any) -> Any:
        _log.note(MISMATCH, name, args, kwargs, f"{became}. {entry.why}")
        return act()

    if isinstance(original, type):
        return type_replacement(original, call, name)
    return named(functools.wraps(original)(call), name)
