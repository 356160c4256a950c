"""Transfer variables between the notebook and the workers.

Functions and classes defined in the notebook are sent by value with cloudpickle. Device tensors are
sent as host tensors, because the other process uses a different card.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle

from hpu_magic.errors import HPUError


class _Pickler(cloudpickle.Pickler):
    """Pickles device tensors as host tensors that are moved to a device when they are loaded."""

    def __init__(self, file: io.BytesIO, device: str) -> None:
        super().__init__(file, protocol=pickle.DEFAULT_PROTOCOL)
        self._device = device

    def reducer_override(self, obj: Any) -> Any:
        # Compare the name, because this module does not import torch.
        kind = f"{type(obj).__module__}.{type(obj).__name__}"
        if _has_memory(obj) and obj.device.type == "hpu":
            import torch

            host = obj.detach().as_subclass(torch.Tensor).cpu()
            return _rebuild, (host, self._device, obj.requires_grad, type(obj), dict(vars(obj)))
        if kind == "torch.device" and obj.type == "hpu" and self._device == "cpu":
            return _device, ("cpu",)
        return super().reducer_override(obj)


def _has_memory(value: Any) -> bool:
    """Return whether a value is a tensor with its own memory, not a tensor wrapper."""
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    return (
        kind is not None
        and isinstance(value, kind)
        and type(value).__reduce_ex__ is kind.__reduce_ex__
        and not hasattr(value, "__tensor_flatten__")
    )


def _rebuild(
    tensor: Any, device: str, requires_grad: bool, kind: type, attributes: Mapping[str, Any]
) -> Any:
    rebuilt = tensor.to(device).as_subclass(kind).requires_grad_(requires_grad)
    vars(rebuilt).update(attributes)
    return rebuilt


def _device(name: str) -> Any:
    import torch

    return torch.device(name)


def pack(values: Mapping[str, Any], device: str) -> bytes:
    """Serialize variables to bytes; the receiving process loads their tensors onto `device`.

    Raises
    ------
    HPUError
        A value cannot be sent; the message contains its name and the reason.
    """
    try:
        return _packed(dict(values), device)
    except Exception as error:  # serializing values may run user code that raises any exception
        name, reason = _culprit(values, device, error)
        raise HPUError(
            f"{name} cannot be sent to another process: {type(reason).__name__}: {reason}"
        ) from error


def _packed(value: Any, device: str) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, device).dump(value)
    return buffer.getvalue()


def _culprit(values: Mapping[str, Any], device: str, error: Exception) -> tuple[str, Exception]:
    for name, value in values.items():
        try:
            _packed(value, device)
        except Exception as reason:  # noqa: BLE001
            return f"{name} (a {type(value).__name__})", reason
    return ", ".join(values), error


def unpack(payload: bytes) -> dict[str, Any]:
    """Deserialize the variables from bytes created by `pack`.

    Raises
    ------
    HPUError
        This process cannot load them, for example because a module is missing.
    """
    try:
        values: dict[str, Any] = pickle.loads(payload)
    except Exception as error:  # loading values may run user code that raises any exception
        raise HPUError(
            f"This process cannot load the variables: {type(error).__name__}: {error}"
        ) from error
    return values
