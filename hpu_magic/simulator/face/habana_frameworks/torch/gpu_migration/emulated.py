"""Replacements for the names in torch.cuda that are in the category hpu_modified.

Each replacement keeps its original name, but with underscores instead of the dots of submodules.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from habana_frameworks.torch import hpu
from habana_frameworks.torch.gpu_migration._devices import module_of

import torch

_COUNTERS = {
    "allocated_bytes": ("InUse", "MaxInUse"),
    "active_bytes": ("InUse", "MaxInUse"),
    "reserved_bytes": ("Limit", "Limit"),
}


class device(hpu.device):
    """Context manager that selects the process's only card, regardless of the device."""

    def __init__(self, device: Any) -> None:
        super().__init__(0)


class graph(hpu.graph):
    """Capture a graph; `pool` is ignored, and `stream` is optional."""

    def __init__(
        self,
        cuda_graph: Any,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        **options: Any,
    ) -> None:
        super().__init__(cuda_graph, stream=stream)


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Return callables that replay a captured graph; `pool` is ignored."""
    return hpu.make_graphed_callables(
        callables, sample_args, warmups=num_warmup_iters, allow_unused_input=allow_unused_input
    )


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether the card supports bfloat16."""
    return hpu.is_bf16_supported()


@dataclass(frozen=True)
class Properties:
    """The device properties that scripts commonly read.

    `name` is the card's generation, `major` and `minor` are the driver version, `total_memory` is
    in bytes, and `multi_processor_count` is the number of tensor processor cores.
    """

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Any = None) -> Properties:
    """Acquire the card, and return its properties in the format that torch.cuda uses."""
    properties = hpu.get_device_properties(module_of(device))
    cores = int(re.search(r"tpcEnabledMask=(\d+)", properties)[1])  # type: ignore[index]
    return Properties(
        hpu.get_device_name(),
        *get_device_capability(),
        total_memory=hpu.mem_get_info()[1],
        multi_processor_count=bin(cores).count("1"),
    )


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Return the major and minor version of the driver."""
    major, minor = re.findall(r"\d+", hpu.get_device_capability(module_of(device)))[:2]
    return int(major), int(minor)


def get_arch_list() -> list[str]:
    """Return an empty list, because CUDA code cannot be compiled for the card."""
    return []


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Return the card's memory statistics under both PyTorch's keys and the vendor's keys."""
    stats = hpu.memory_stats()
    flat = OrderedDict(
        (f"{counter}.all.{moment}", stats[key])
        for counter, keys in _COUNTERS.items()
        for moment, key in zip(("current", "peak"), keys, strict=True)
    )
    flat["allocation.all.current"] = stats["ActiveAllocs"]
    flat["allocation.all.allocated"] = stats["NumAllocs"]
    flat["allocation.all.freed"] = stats["NumFrees"]
    flat.update(stats)
    return flat


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Return the memory statistics as nested dicts."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats().items():
        *path, last = key.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Return the memory statistics as a table."""
    return hpu.memory_summary()


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    """Return the state of the card's generator."""
    return hpu.get_rng_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    """Set the state of the card's generator."""
    hpu.set_rng_state(new_state)


def comm_scatter(
    tensor: torch.Tensor,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Split a tensor into chunks on the card: one per device or per chunk size."""
    if out is not None:
        sizes = [each.size(dim) for each in out]
        for each, part in zip(out, tensor.split(sizes, dim), strict=True):
            each.copy_(part)
        return tuple(out)
    count = len(devices or (0,))
    parts = tensor.chunk(count, dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
    return tuple(part.to("hpu") for part in parts)


def comm_gather(
    tensors: Sequence[torch.Tensor],
    dim: int = 0,
    destination: Any = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Concatenate tensors, and return the result on the card or on the CPU."""
    result = torch.cat([each if each.dim() else each.view(1) for each in tensors], dim)
    if out is not None:
        return out.copy_(result)
    return result.to("cpu" if destination in (-1, "cpu", torch.device("cpu")) else "hpu")


def comm_broadcast(
    tensor: torch.Tensor,
    devices: Sequence[Any] | None = None,
    *,
    out: Sequence[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return a tuple with one copy of the tensor on the card for each device."""
    if out is not None:
        return tuple(each.copy_(tensor) for each in out)
    return tuple(tensor.to("hpu") for _ in devices or ())


def comm_broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[Any], buffer_size: int = 0
) -> tuple[tuple[torch.Tensor, ...], ...]:
    """Return a tuple of tensors on the card for each device."""
    return tuple(tuple(each.to("hpu") for each in tensors) for _ in devices)


def comm_reduce_add(inputs: Sequence[torch.Tensor], destination: Any = None) -> torch.Tensor:
    """Sum the tensors on the card."""
    return torch.stack([each.to("hpu") for each in inputs]).sum(0)


def comm_reduce_add_coalesced(
    inputs: Sequence[Sequence[torch.Tensor]], destination: Any = None, buffer_size: int = 0
) -> tuple[torch.Tensor, ...]:
    """Sum the tensors at each position across all inputs."""
    return tuple(comm_reduce_add(same) for same in zip(*inputs, strict=True))


class amp_autocast(torch.autocast):
    """Autocast on the HPU, with bfloat16 as the default dtype."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True
    ) -> None:
        super().__init__("hpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def nvtx_range(msg: str, *args: Any, **kwargs: Any) -> torch.profiler.record_function:
    """Return a named range for torch.profiler."""
    return torch.profiler.record_function(msg.format(*args, **kwargs))


@contextlib.contextmanager
def nothing(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager that does nothing."""
    yield
