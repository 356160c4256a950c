"""Time per small operation on the device, relative to the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import torch

from bench.harness import Figure, in_turn, quiet_ratio

ADDITIONS = 2000


def additions(device: str):
    left = torch.randn(4, 4).to(device)
    right = torch.randn(4, 4).to(device)

    def add() -> None:
        for _ in range(ADDITIONS):
            left + right

    return add


def figures() -> Iterator[Figure]:
    ratio = quiet_ratio(in_turn(additions("cpu"), additions("hpu"), 200, clock=process_time))
    yield Figure("4x4 add: hpu / cpu", ratio, "ratio", 2.0)
