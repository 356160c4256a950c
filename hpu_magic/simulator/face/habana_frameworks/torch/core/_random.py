"""PyTorch's seeding functions, which also seed the device, like in the vendor's bridge."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from habana_frameworks.torch.hpu import random as hpu_random

import torch


def install() -> None:
    """Replace PyTorch's seeding functions and `fork_rng`, unless they are already replaced."""
    if hasattr(torch.manual_seed, "_seeds_hpu"):
        return
    torch.manual_seed = torch.random.manual_seed = _seeding_hpu(torch.random.manual_seed)
    torch.seed = torch.random.seed = _seeding_hpu(torch.random.seed)
    torch.random.fork_rng = _forking_hpu(torch.random.fork_rng)


def _seeding_hpu(seed_cpu: Any) -> Any:
    @functools.wraps(seed_cpu)
    def seed(*args: Any, **options: Any) -> Any:
        result = seed_cpu(*args, **options)
        hpu_random.manual_seed(torch.initial_seed())
        return result

    seed._seeds_hpu = True  # type: ignore[attr-defined]
    return seed


def _forking_hpu(fork_rng: Any) -> Any:
    @contextlib.contextmanager
    @functools.wraps(fork_rng)
    def fork(
        devices: Iterable[Any] | None = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str = "hpu",
    ) -> Iterator[None]:
        if device_type == "hpu" and devices is None:
            devices = [0]  # a process has only one card
        with fork_rng(devices, enabled, _caller, _devices_kw, device_type):
            yield

    return fork
