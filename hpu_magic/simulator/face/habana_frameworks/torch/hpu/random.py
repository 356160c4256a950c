"""The device's random generator."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Any

import torch
from hpu_magic.simulator import cards, engine

from ._utils import named_index

default_generators: tuple[torch.Generator, ...] = (engine.load().default_generator(),)


def get_rng_state(device: Any = "hpu") -> torch.Tensor:
    """Return the generator's state as a ByteTensor on the CPU; see `set_rng_ctx`."""
    _check_first(device, "hpu get_rng_state supports only device 0")
    return _philox.state() if _philox.entered else default_generators[0].get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
    """Set the generator's state; see `set_rng_ctx`."""
    _check_first(device, "hpu set_rng_state supports only device 0")
    if _philox.entered:
        _philox.set_state(new_state)
    else:
        default_generators[0].set_state(new_state)


def set_rng_ctx(ctx: str) -> None:
    """Have states of 16 bytes, a seed and an offset, from now on: those of a Philox generator.

    A DTensor gives each shard its part of one sequence of numbers by adding to the offset. What is
    drawn for a seed and an offset is the same in each process.

    Raises
    ------
    ValueError
        `ctx` is not "philox".
    """
    _check_context(ctx)
    _philox.entered = True


def unset_rng_ctx(ctx: str) -> None:
    """Have states of the generator as they are again.

    Raises
    ------
    ValueError
        `ctx` is not "philox".
    """
    _check_context(ctx)
    _philox.entered = False


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
    index = named_index(device) or 0
    if index != 0:
        try:
            cards.choose(index)
        except RuntimeError as refused:
            raise RuntimeError(f"{message}: {refused}") from refused


class _Philox:
    """The generator's state as a seed and an offset.

    There is no Philox generator here: the CPU's is seeded by both. What others draw from it then
    counts as another seed.
    """

    def __init__(self) -> None:
        self.entered = False
        self._pairs: dict[int, tuple[int, int]] = {}  # by what the generator was seeded with

    def state(self) -> torch.Tensor:
        """Return the seed and the offset, 8 bytes each."""
        generator = default_generators[0]
        state, seeded = generator.get_state(), generator.initial_seed() % _WORD
        if torch.equal(state, torch.Generator().manual_seed(seeded).get_state()):
            seed, offset = self._pairs.get(seeded, (seeded, 0))
        else:
            seed, offset = _digest(state.numpy().tobytes()), 0
        data = seed.to_bytes(8, sys.byteorder) + offset.to_bytes(8, sys.byteorder)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        """Seed the generator by a seed and an offset."""
        data = state.cpu().numpy().tobytes()
        if len(data) != 16:
            raise RuntimeError(
                f"A state of the context 'philox' has 16 bytes, a seed and an offset, and got "
                f"{len(data)}; call unset_rng_ctx('philox') for the generator's own states."
            )
        seed, offset = (int.from_bytes(part, sys.byteorder) for part in (data[:8], data[8:]))
        seeded = _digest(data) if offset else seed
        if offset:
            self._pairs.pop(seeded, None)
            self._pairs[seeded] = (seed, offset)
            if len(self._pairs) > _MOST_PAIRS:
                del self._pairs[next(iter(self._pairs))]
        default_generators[0].manual_seed(seeded)


_WORD = 1 << 64
_MOST_PAIRS = 4096
_philox = _Philox()


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), sys.byteorder)


def _check_context(ctx: str) -> None:
    if ctx != "philox":
        raise ValueError(f"There is no context {ctx!r} of random numbers: use 'philox'.")
