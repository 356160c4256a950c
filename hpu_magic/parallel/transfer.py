"""Variables on their way between the notebook and the workers.

Functions and classes of the notebook travel whole (cloudpickle). Tensors on the card travel as
tensors of the host: the card of the other process is another one.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from typing import Any

import cloudpickle

from hpu_magic.errors import RefusedError


class _Pickler(cloudpickle.Pickler):
    """Pickles tensors of the card as those of the host, to be moved to a device at the end."""

    def __init__(self, file: io.BytesIO, device: str) -> None:
        super().__init__(file, protocol=pickle.DEFAULT_PROTOCOL)
        self._device = device

    def reducer_override(self, obj: Any) -> Any:
        # By name, so that nothing here imports torch.
        kind = f"{type(obj).__module__}.{type(obj).__name__}"
        if _has_memory(obj) and obj.device.type == "hpu":
            import torch

            host = obj.detach().as_subclass(torch.Tensor).cpu()
            return _arrived, (host, self._device, obj.requires_grad, type(obj), dict(vars(obj)))
        if kind == "torch.device" and obj.type == "hpu" and self._device == "cpu":
            return _device, ("cpu",)
        return super().reducer_override(obj)


def _has_memory(value: Any) -> bool:
    """Tell tensors, of subclasses too, from those made of other tensors, which travel as these."""
    # Nobody has a tensor before torch is imported.
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    return (
        kind is not None
        and isinstance(value, kind)
        and type(value).__reduce_ex__ is kind.__reduce_ex__
        and not hasattr(value, "__tensor_flatten__")
    )


def _arrived(
    tensor: Any, device: str, requires_grad: bool, kind: type, attributes: Mapping[str, Any]
) -> Any:
    arrived = tensor.to(device).as_subclass(kind).requires_grad_(requires_grad)
    vars(arrived).update(attributes)
    return arrived


def _device(name: str) -> Any:
    import torch

    return torch.device(name)


def pack(values: Mapping[str, Any], device: str) -> bytes:
    """Return variables as bytes.

    Parameters
    ----------
    values
        By name.
    device
        Where tensors of the card shall lie at the end: ``"hpu"``, the other process's card, or
        ``"cpu"``.

    Raises
    ------
    RefusedError
        A value cannot be sent; the text names it and says why.
    """
    try:
        return _packed(dict(values), device)
    except Exception as error:  # whatever the values' own code raises
        name, reason = _culprit(values, device, error)
        raise RefusedError(
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
    """Return the variables that `pack` made into bytes.

    Raises
    ------
    RefusedError
        This process cannot make them, for example for want of a module.
    """
    try:
        values: dict[str, Any] = pickle.loads(payload)
    except Exception as error:  # whatever the values' own code raises
        raise RefusedError(
            f"The variables cannot be made again in this process: {type(error).__name__}: {error}"
        ) from error
    return values
