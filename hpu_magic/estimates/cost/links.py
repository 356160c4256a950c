"""Calculate how long communication between cards takes."""

from __future__ import annotations

from hpu_magic.estimates.cost.constants import Constants
from hpu_magic.estimates.cost.hardware import LINK_EFFICIENCY, Generation


def scatter(
    size: float, partners: int, generation: Generation, constants: Constants, stride: int = 1
) -> float:
    """Return the time in seconds for a reduce-scatter or all-gather of ``size`` bytes in total.

    Within a machine, a card uses its links to the other members of its group. A group that spans
    several machines first reduces within each machine, and then each card exchanges its shard with
    the other machines. ``stride`` is the distance between neighboring cards of the group.
    """
    if partners < 2:
        return 0.0
    within = max(min(partners, generation.cards_per_machine // stride), 1)
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
    """Return the time in seconds for an all-reduce of `size` bytes per card."""
    return 2 * scatter(size, partners, generation, constants, stride)


def all_to_all(size: float, partners: int, generation: Generation, constants: Constants) -> float:
    """Return the time in seconds in which each card sends `size` bytes, divided among all cards."""
    within = min(partners, generation.cards_per_machine)
    pair = generation.pair_bandwidth * LINK_EFFICIENCY
    seconds = constants.link_latency + size / partners / pair
    if partners > within:
        rate = generation.scale_out_bandwidth * LINK_EFFICIENCY
        seconds += constants.link_latency + size * (partners - within) / partners / rate
    return seconds


def send(size: float, generation: Generation, constants: Constants, stride: int = 1) -> float:
    """Return the time in seconds for sending `size` bytes from one card to another."""
    within = stride < generation.cards_per_machine
    rate = generation.pair_bandwidth if within else generation.scale_out_bandwidth
    return constants.link_latency + size / (rate * LINK_EFFICIENCY)
