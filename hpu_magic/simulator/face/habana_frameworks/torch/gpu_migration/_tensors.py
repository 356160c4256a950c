"""Map device arguments of torch's own functions, and the CUDA methods of tensors."""

from __future__ import annotations

import functools
import sys
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch._replacements import named
from habana_frameworks.torch.gpu_migration import _log
from habana_frameworks.torch.gpu_migration._devices import numbered, place, places
from habana_frameworks.torch.gpu_migration._wrapping import (
    mapped_to_card,
    replace,
    type_replacement,
)

import torch
import torch.utils._device
from hpu_magic.torch_cuda import MATCH
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import handle_torch_function, has_torch_function

# Python functions that take a device or a device type as an argument, by module.
_FUNCTIONS = {
    "torch": (
        "asarray",
        "set_default_device",
        "get_device_module",
        "is_autocast_enabled",
        "set_autocast_enabled",
        "get_autocast_dtype",
        "set_autocast_dtype",
        "is_autocast_available",
    ),
    "torch.amp": ("custom_fwd", "custom_bwd", "is_autocast_available"),
    "torch.amp.autocast_mode": ("custom_fwd", "custom_bwd", "is_autocast_available"),
}
_METHODS = (
    (torch.amp.autocast_mode.autocast, "__init__", "torch.autocast"),
    (torch.utils.data.DataLoader, "__init__", "torch.utils.data.DataLoader"),
    (torch.nn.Module, "to_empty", "torch.nn.Module.to_empty"),
    (torch.Tensor, "new_tensor", "torch.Tensor.new_tensor"),
)
_DEVICE_TYPES = ("Device", "Optional[Device]")
_EXCLUDED = ("eq", "ne", "to")  # TorchScript compares devices with eq and ne; "to" is mapped below


def install() -> None:
    """Map the device arguments."""
    own = set(torch.utils._device._device_constructors())
    torch.device = type_replacement(torch.device, _device, "torch.device")
    torch.Generator = type_replacement(torch.Generator, _generator, "torch.Generator")
    for operator in sorted(_operators_with_device()):
        for owner, path, name in (
            (torch, "torch", operator),
            (torch.fft, "torch.fft", operator.removeprefix("fft_")),
            (torch.Tensor, "torch.Tensor", operator),
        ):
            if owner is not torch.fft or name != operator:
                _map(owner, path, name, tensors=True)
    for module, names in _FUNCTIONS.items():
        for name in names:
            _map(sys.modules[module], module, name, tensors=name == "asarray")
    for owner, name, shown in _METHODS:
        replace(owner, name, mapped_to_card(shown, method=True))
    _install_tensor_methods()
    _install_autocast_of_gpus()
    replace(torch, "set_default_tensor_type", _default_type)
    replace(torch.random, "fork_rng", mapped_to_card("torch.random.fork_rng", _one_generator))
    replace(torch.amp.GradScaler, "__init__", _scaler)
    # PyTorch caches the set of functions that use the default device.
    torch.utils._device._device_constructors.cache_clear()
    torch.utils._device._device_constructors().update(own)


def _operators_with_device() -> set[str]:
    """Return the names of the PyTorch operators that have a device argument."""
    return {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and not schema.name.startswith("aten::_")
        and any(str(each.type) in _DEVICE_TYPES for each in schema.arguments)
    }.difference(_EXCLUDED)


def _map(owner: Any, path: str, name: str, *, tensors: bool) -> None:
    if isinstance(getattr(owner, name, None), type):
        return  # skip types such as torch.Generator, whose constructor is an operator
    method = owner is torch.Tensor
    replace(owner, name, mapped_to_card(f"{path}.{name}", method=method, tensors=tensors))


def _device(*args: Any, **kwargs: Any) -> torch.device:
    original = torch.device.__wrapped__  # type: ignore[attr-defined]
    device = original(*args, **kwargs)
    if device.type != "cuda":
        return device
    card = place(device)
    _log.note(MATCH, "torch.device", args, kwargs, repr(card), argument=True)
    return card


def _generator(device: Any = "cpu") -> torch.Generator:
    original = torch.Generator.__wrapped__  # type: ignore[attr-defined]
    card = numbered(device)
    if card is not device:
        _log.note(MATCH, "torch.Generator", (device,), {}, f"device={card!r}", argument=True)
    return original(device=card)


def _install_tensor_methods() -> None:
    for owner, name in (
        (torch.Tensor, "torch.Tensor"),
        (torch.nn.Module, "torch.nn.Module"),
        (PackedSequence, "torch.nn.utils.rnn.PackedSequence"),
    ):
        tensors = owner is torch.Tensor
        replace(
            owner, "to", mapped_to_card(f"{name}.to", _first_numbered, method=True, tensors=tensors)
        )
    torch.Tensor.cuda = _to_card("torch.Tensor.cuda")
    torch.nn.Module.cuda = _to_card("torch.nn.Module.cuda", ())
    torch.Tensor.is_cuda = property(_is_on_card, doc="Whether the tensor is on the card.")
    torch.UntypedStorage.is_cuda = property(_is_on_card)
    torch.TypedStorage.is_cuda = property(_is_on_card)
    torch.Tensor.__cuda_array_interface__ = property(_no_cuda_memory)
    replace(torch.Tensor, "type", _typed)


def _first_numbered(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Map device arguments, including a number in the first position, as in ``tensor.to(0)``."""
    if len(args) > 1 and type(args[1]) is int:
        args = (args[0], numbered(args[1]), *args[2:])
    return places(args, kwargs)


def _one_generator(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Map any list of GPUs, as in ``fork_rng([0, 1])``, to the process's card."""
    args, kwargs = places(args, kwargs)
    devices = args[0] if args else kwargs.get("devices")
    if devices is None:
        return args, kwargs
    cards = [0] if list(devices) else []
    return ((cards, *args[1:]), kwargs) if args else (args, {**kwargs, "devices": cards})


def _to_card(name: str, options: tuple[str, ...] = ("non_blocking", "memory_format")) -> Any:
    def cuda(self: Any, device: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Move the tensor or module to the HPU, regardless of which GPU `device` specifies."""
        if isinstance(self, torch.Tensor) and has_torch_function((self,)):
            return handle_torch_function(cuda, (self,), self, device, *args, **kwargs)
        devices = () if device is None else (device,)
        _log.note(MATCH, name, devices, kwargs, "to('hpu')", argument=True)
        # Slice both lists to the same length, because older Dynamo releases only support
        # zip(strict=True).
        positional = zip(options[: len(args)], args[: len(options)], strict=True)
        kwargs = {**dict(positional), **kwargs}
        if "async" in kwargs:
            kwargs["non_blocking"] = kwargs.pop("async")
        return self.to("hpu", **kwargs)

    return named(cuda, name)


def _is_on_card(self: Any) -> bool:
    return self.device.type == "hpu"


def _no_cuda_memory(self: torch.Tensor) -> Any:
    raise AttributeError("A tensor on hpu is not in CUDA memory.")


def _typed(original: Any) -> Any:
    """Make ``tensor.type`` accept CUDA tensor types, either as classes or by name."""

    def type(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the name of the tensor's type, or the tensor converted to `dtype`."""
        if isinstance(dtype, str) and dtype.startswith(("torch.cuda.", "torch.hpu.")):
            dtype = getattr(hpu, dtype.rpartition(".")[2])
        if getattr(dtype, "__module__", None) == "torch.hpu":
            return self.to("hpu", dtype.dtype, *args, **kwargs)
        return original(self, dtype, *args, **kwargs)

    return type


def _default_type(original: Any) -> Any:
    device_is_set = False

    def set_default_tensor_type(t: Any) -> None:
        """Set the default dtype; a CUDA type also makes the HPU the default device."""
        nonlocal device_is_set
        if isinstance(t, str) and t.startswith("torch.cuda."):
            t = getattr(hpu, t.rpartition(".")[2])
        if getattr(t, "__module__", None) == "torch.hpu":
            torch.set_default_dtype(t.dtype)
            torch.set_default_device("hpu")
            device_is_set = True
            return
        original(t)
        if device_is_set:
            torch.set_default_device(None)
            device_is_set = False

    return set_default_tensor_type


def _scaler(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, device: str = "hpu", *args: Any, **kwargs: Any) -> None:
        card = place(device)
        if card is not device:
            _log.note(
                MATCH, "torch.amp.GradScaler", (device,), {}, f"device={card!r}", argument=True
            )
        original(self, card, *args, **kwargs)

    return __init__


def _install_autocast_of_gpus() -> None:
    torch.set_autocast_gpu_dtype = lambda dtype: torch.set_autocast_dtype("hpu", dtype)
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("hpu")
