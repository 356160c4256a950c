"""Replace PyTorch's functions and types."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch._replacements import as_replacement, named
from habana_frameworks.torch.gpu_migration import _log
from habana_frameworks.torch.gpu_migration._devices import places

from hpu_magic.torch_cuda import MATCH
from torch.overrides import handle_torch_function, has_torch_function

OPERATORS: list[Callable[..., Any]] = []
"""Replacements for PyTorch's operators."""


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute with ``make(original)`` if `owner` has it."""
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, make(original))


def mapped_to_card(
    name: str, translate: Any = places, *, method: bool = False, tensors: bool = False
) -> Callable[[Any], Any]:
    """Return a decorator that maps CUDA devices in a function's arguments to the HPU.

    Parameters
    ----------
    name : str
        Name of the function, used in the log and by pickle.
    translate : callable
        Returns the new args and kwargs for the function, or the same objects if nothing changes.
    method : bool
        Whether the first argument is ``self``, which the log omits.
    tensors : bool
        Whether tensor subclasses and function modes can override the function. An override receives
        the replacement as its ``func`` argument.
    """
    first = int(method)

    def wrap(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if tensors and has_torch_function(args):
                return handle_torch_function(call, args, *args, **kwargs)
            new_args, new_kwargs = translate(args, kwargs)
            if _log.LEVEL and (new_args is not args or new_kwargs is not kwargs):
                became = f"{name}({_log.shown(new_args[first:], new_kwargs)})"
                _log.note(MATCH, name, args[first:], kwargs, became, argument=True)
            return function(*new_args, **new_kwargs)

        if tensors:
            OPERATORS.append(call)
        return as_replacement(call, function, name)

    return wrap


class _TypeReplacement(type):
    """Metaclass of the replacements for types whose constructor is mapped.

    Apart from its constructor, a replacement behaves like the original type: in isinstance and
    issubclass checks, as a base class, as a dictionary key, and when its attributes are accessed.
    """

    __wrapped__: type

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        if not any(isinstance(base, _TypeReplacement) for base in bases):
            return super().__new__(mcls, name, bases, namespace)
        real = tuple(
            base.__wrapped__ if isinstance(base, _TypeReplacement) else base for base in bases
        )
        return types.new_class(name, real, options, lambda body: body.update(namespace))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._construct(*args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__wrapped__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(getattr(subclass, "__wrapped__", subclass), cls.__wrapped__)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.__wrapped__, name)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__wrapped__

    def __hash__(cls) -> int:
        return hash(cls.__wrapped__)

    def __dir__(cls) -> list[str]:
        return dir(cls.__wrapped__)


def type_replacement(original: type, construct: Callable[..., Any], name: str) -> Any:
    """Return a replacement for a type that calls `construct` to create instances."""
    namespace = {
        "__doc__": original.__doc__,
        "__wrapped__": original,
        "_construct": staticmethod(construct),
    }
    with contextlib.suppress(ValueError):  # C++ types have no signature
        # Some Python releases do not follow the `__wrapped__` attribute of a type.
        namespace["__signature__"] = inspect.signature(original)
    return named(_TypeReplacement(original.__name__, (), namespace), name)
