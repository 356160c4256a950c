"""Map process groups from NCCL to HCCL, and data-parallel modules to a single card."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.gpu_migration import _log
from habana_frameworks.torch.gpu_migration._devices import place
from habana_frameworks.torch.gpu_migration._wrapping import mapped_to_card, replace

import torch
import torch.distributed as dist
from hpu_magic.torch_cuda import MODIFIED

_NCCL, _HCCL = "nccl", "hccl"
_GROUPS = ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration")


def install() -> None:
    """Map the backends of process groups, and the devices of data-parallel modules."""
    replace(torch.nn, "DataParallel", _one_device)
    torch.nn.parallel.DataParallel = torch.nn.DataParallel
    if not dist.is_available():
        return
    for name in _GROUPS:
        replace(dist, name, _with_backend(f"torch.distributed.{name}"))
        setattr(dist.distributed_c10d, name, getattr(dist, name))
    # Replaced only for callers outside torch, because PyTorch's own code needs the real backend.
    replace(dist, "get_backend", _named)
    dist.is_nccl_available = lambda: True
    replace(dist, "barrier", _without_devices)
    mesh = mapped_to_card("torch.distributed.init_device_mesh")
    replace(dist, "init_device_mesh", mesh)
    replace(dist.device_mesh, "init_device_mesh", mesh)
    replace(
        dist.DeviceMesh, "__init__", mapped_to_card("torch.distributed.DeviceMesh", method=True)
    )
    replace(torch.nn.parallel.DistributedDataParallel, "__init__", _first_device)


def _backend(name: Any) -> Any:
    """Replace ``nccl`` with ``hccl``, even inside a name like ``cpu:gloo,cuda:nccl``."""
    if not isinstance(name, str):
        return name
    return re.sub(r"\bcuda:", "hpu:", re.sub(rf"\b{_NCCL}\b", _HCCL, name, flags=re.IGNORECASE))


def _with_backend(name: str) -> Callable[[Any], Any]:
    def translate(
        args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mapped = tuple(map(_backend, args[:1])) + args[1:]
        changed = {
            "backend": _backend(kwargs.get("backend")),
            "device_id": place(kwargs.get("device_id")),
        }
        changed = {key: value for key, value in changed.items() if value != kwargs.get(key)}
        return (args if mapped == args else mapped), ({**kwargs, **changed} if changed else kwargs)

    return mapped_to_card(name, translate)


def _named(original: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(original)
    def get_backend(group: Any = None) -> str:
        name = original(group)
        return _NCCL if name == _HCCL else name

    return get_backend


def _without_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return original(group, async_op)

    return barrier


def _first_device(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, **options: Any
    ) -> None:
        if device_ids:
            _log.note(
                MODIFIED,
                "DistributedDataParallel",
                (module,),
                {"device_ids": device_ids},
                "device_ids=[0]",
            )
            device_ids, output_device = [0], 0
        original(self, module, device_ids, output_device, **options)

    return __init__


def _one_device(original: type[torch.nn.Module]) -> Any:
    class DataParallel(original):  # type: ignore[valid-type, misc]
        """A module on the process's only card, with the interface of ``DataParallel``."""

        def __init__(
            self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0
        ) -> None:
            _log.note(
                MODIFIED,
                "torch.nn.DataParallel",
                (module,),
                {"device_ids": device_ids},
                "one card; for several cards, start one process per card",
            )
            super().__init__(module, device_ids=[0], output_device=0, dim=dim)

    DataParallel.__module__, DataParallel.__qualname__ = original.__module__, "DataParallel"
    return DataParallel
