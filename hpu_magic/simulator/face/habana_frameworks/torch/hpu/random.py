"""The device's random generator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from hpu_magic.simulator import engine

from ._utils import named_index

default_generators: tuple[torch.Generator, ...] = (engine.load().default_generator(),)


def get_rng_state(device: Any = "hpu") -> torch.Tensor:
    """Return the generator's state as a ByteTensor on the CPU."""
    _check_first(device, "hpu get_rng_state supports only device 0")
    return default_generators[0].get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
    """Set the generator's state."""
    _check_first(device, "hpu set_rng_state supports only device 0")
    default_generators[0].set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of this process's devices: one."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of this process's devices: one."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> torch.Generator:
    """Seed the device's generator, and only it."""
    return default_generators[0].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices of this process."""
    manual_seed(seed)


def seed() -> int:
    """Seed the device's generator with a random number and return it."""
    return default_generators[0].seed()


def seed_all() -> None:
    """Seed the generators of all devices of this process with a random number."""
    seed()


def initial_seed() -> int:
    """Return the seed of the device's generator."""
    return default_generators[0].initial_seed()


def _check_first(device: Any, message: str) -> None:
    if (named_index(device) or 0) != 0:
        raise RuntimeError(message)
