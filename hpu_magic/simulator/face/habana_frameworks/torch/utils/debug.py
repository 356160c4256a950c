"""Looks behind the device: what fell back, what was compiled, where a tensor lives."""

from __future__ import annotations

import cProfile
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from hpu_magic.simulator import engine

_profiles = itertools.count()


def _get_fallback_op_count() -> dict[str, int]:
    """Return how often each operator (``aten::op.overload``) fell back to the CPU."""
    return dict(engine.load().counters()["cpu_fallback"]["operators"])


def get_tensor_info(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return address and size in bytes of a tensor's memory on the device, or None without any."""
    if tensor.device.type != "hpu":
        return None
    storage = tensor.untyped_storage()
    return (storage.data_ptr(), storage.nbytes()) if storage.nbytes() else None


def _get_jit_cache_size() -> int:
    """Return the number of different graphs that lazy mode has compiled and keeps recipes of.

    In eager mode it is 0: operators run without recipes, and compiled programs are Dynamo's.
    """
    return engine.load().compiled_graphs()


def _clear_jit_cache() -> None:
    """Forget the recipes of lazy mode: each graph compiles again when it next runs."""
    engine.load().clear_compiled_graphs()


def clear_dynamic_bucket_recipe_info() -> None:
    """Do nothing: simulated recipes serve one shape each, so there are no buckets of shapes."""


@contextmanager
def cprofile(dirname: str) -> Iterator[Path]:
    """Profile the Python code of the block into a file of the directory, for ``pstats``.

    The directory is created if need be. The block gets the file's path: the process id, the
    number of the profile, and ``.prof``.
    """
    path = Path(dirname) / f"{os.getpid()}-{next(_profiles)}.prof"
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield path
    finally:
        profile.disable()
        profile.dump_stats(path)
