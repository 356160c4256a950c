"""The device's random number generator."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Iterable
from typing import Any

from habana_frameworks.torch.hpu._utils import named_index

import torch
from hpu_magic.simulator import cards, engine

default_generators: tuple[torch.Generator, ...] = (engine.load().default_generator(),)


def get_rng_state(device: Any = "hpu") -> torch.Tensor:
    """Return the generator's state as a ByteTensor on the CPU; see `set_rng_ctx`."""
    _check_first(device, "hpu get_rng_state supports only device 0")
    return _current().get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "hpu") -> None:
    """Set the generator's state; see `set_rng_ctx`."""
    _check_first(device, "hpu set_rng_state supports only device 0")
    _current().set_state(new_state)


def set_rng_ctx(ctx: str) -> None:
    """Represent RNG states as 16-byte Philox states (seed and offset) in the calling thread.

    DTensor increases the offset, so that each shard uses a different part of the same random
    sequence. The seed and offset determine the random numbers in every process. The generator's own
    state contains the seed and the offset, so a run that restores this state draws the same random
    numbers for DTensors. Raises ValueError if `ctx` is not "philox".
    """
    _check_context(ctx)
    _context.philox = True


def unset_rng_ctx(ctx: str) -> None:
    """Switch back to the generator's own state format in this thread; `ctx` must be "philox"."""
    _check_context(ctx)
    _context.philox = False


def get_rng_state_all() -> list[torch.Tensor]:
    """Return a list with the state of the process's only device."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the state of the process's only device from a list."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> torch.Generator:
    """Seed only the device's generator."""
    return default_generators[0].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices of this process."""
    manual_seed(seed)


def seed() -> int:
    """Seed the device's generator with a random number, and return that number."""
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


class PhiloxStates:
    """States of a device generator with 16 bytes: 8 for the seed and 8 for the offset."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def get_state(self) -> torch.Tensor:
        """Return the seed and the offset as a ByteTensor on the CPU.

        The simulator's Mersenne Twister has no offset after random numbers have been drawn. In that
        case, this method derives an offset from the generator's state and sets the generator to the
        offset, so that the next random numbers are the same as after `set_state`.
        """
        generator = self._generator
        seed, offset = generator.initial_seed() % _WORD, generator.get_offset()
        state = generator.get_state()
        if not torch.equal(state, _set(generator.clone_state(), seed, offset).get_state()):
            offset = _offset_of(state)
            _set(generator, seed, offset)
        data = seed.to_bytes(8, sys.byteorder) + offset.to_bytes(8, sys.byteorder)
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        """Set the seed and the offset; raise RuntimeError if `state` does not have 16 bytes."""
        data = state.cpu().numpy().tobytes()
        if len(data) != 16:
            raise RuntimeError(
                "An RNG state in the 'philox' context must have 16 bytes (seed and offset), but "
                f"has {len(data)}; to use the generator's own states, call unset_rng_ctx('philox')."
            )
        seed, offset = (int.from_bytes(part, sys.byteorder) for part in (data[:8], data[8:]))
        _set(self._generator, seed, offset)


class _Context(threading.local):
    philox = False


_WORD = 1 << 64
_context = _Context()


def _current() -> torch.Generator | PhiloxStates:
    generator = default_generators[0]
    return PhiloxStates(generator) if _context.philox else generator


def _set(generator: torch.Generator, seed: int, offset: int) -> torch.Generator:
    generator.manual_seed(seed).set_offset(offset)
    return generator


def _offset_of(state: torch.Tensor) -> int:
    digest = hashlib.blake2b(state.numpy().tobytes(), digest_size=8).digest()
    # Offsets are multiples of 4 that fit in an int64, because DTensor does int64 arithmetic on
    # them.
    return (int.from_bytes(digest, sys.byteorder) >> 2) & ~3


def _check_context(ctx: str) -> None:
    if ctx != "philox":
        raise ValueError(f"Unknown random number context {ctx!r}; use 'philox'.")
