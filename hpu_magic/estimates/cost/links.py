"""Time of collectives between cards."""

from __future__ import annotations

from hpu_magic.estimates.cost.constants import Constants
from hpu_magic.estimates.cost.hardware import LINK_EFFICIENCY, Generation


def scatter(
    size: float, partners: int, generation: Generation, constants: Constants, stride: int = 1
) -> float:
    """Return the seconds of a reduce-scatter, or of an all-gather, of `size` bytes in all.

    Within a machine, a card has its links to the partners and no others. Groups that span machines
    first reduce within each, then each card its part with those of the other machines.

    Parameters
    ----------
    stride : int
        How many cards apart two neighbours of the group are.
    """
    if partners < 2:
        return 0.0
    within = max(min(partners, generation.cards_a_machine // stride), 1)
    machines = partners / within
    seconds = constants.link_latency
    if within > 1:
        rate = generation.pair_bandwidth * (within - 1) * LINK_EFFICIENCY
        seconds += size * (within - 1) / within / rate
    if machines > 1:
        rate = generation.scale_out_bandwidth * LINK_EFFICIENCY
        seconds += constants.link_latency + size / within * (machines - 1) / machines / rate
    return seconds


def all_reduce(
    size: float, partners: int, generation: Generation, constants: Constants, stride: int = 1
) -> float:
    """Return the seconds of an all-reduce of `size` bytes on each card."""
    return 2 * scatter(size, partners, generation, constants, stride)


def send(size: float, generation: Generation, constants: Constants, stride: int = 1) -> float:
    """Return the seconds in which a card sends `size` bytes to another."""
    within = stride < generation.cards_a_machine
    rate = generation.pair_bandwidth if within else generation.scale_out_bandwidth
    return constants.link_latency + size / (rate * LINK_EFFICIENCY)
