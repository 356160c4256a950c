"""What one small operation costs on the device beyond its cost on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .harness import Figure, in_turn, median_difference

ADDITIONS = 2000


def additions(device: str):
    left = torch.randn(4, 4).to(device)
    right = torch.randn(4, 4).to(device)

    def add() -> None:
        for _ in range(ADDITIONS):
            left + right

    return add


def figures() -> Iterator[Figure]:
    pairs = in_turn(additions("cpu"), additions("hpu"), 200)
    extra = median_difference(pairs) / ADDITIONS
    yield Figure("4x4 add: hpu - cpu", extra * 1e6, "µs", 1.0)
