"""Calculate how long communication between cards takes."""

from __future__ import annotations

from collections.abc import Callable

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


def all_to_all(
    size: float, partners: int, generation: Generation, constants: Constants, stride: int = 1
) -> float:
    """Return the time in seconds for each card to send `size` bytes, divided among all cards."""
    within = max(min(partners, generation.cards_per_machine // stride), 1)
    pair = generation.pair_bandwidth * LINK_EFFICIENCY
    seconds = constants.link_latency + size / partners / pair
    if partners > within:
        rate = generation.scale_out_bandwidth * LINK_EFFICIENCY
        seconds += constants.link_latency + size * (partners - within) / partners / rate
    return seconds


def send(
    size: float, partners: int, generation: Generation, constants: Constants, stride: int = 1
) -> float:
    """Return the time in seconds for sending `size` bytes from one card to another."""
    within = stride < generation.cards_per_machine
    rate = generation.pair_bandwidth if within else generation.scale_out_bandwidth
    return constants.link_latency + size / (rate * LINK_EFFICIENCY)


# A broadcast scatters the tensor and then gathers it on all cards, and a reduction to one card also
# needs both steps.
SECONDS: dict[str, Callable[[float, int, Generation, Constants, int], float]] = {
    "all_reduce": all_reduce,
    "all_gather": scatter,
    "reduce_scatter": scatter,
    "all_to_all": all_to_all,
    "broadcast": all_reduce,
    "reduce": all_reduce,
    "gather": scatter,
    "scatter": scatter,
    "barrier": all_reduce,
    "send": send,
    "recv": send,
}
"""The functions that return the time of each kind of collective, for `size` bytes in total."""

_TWICE = ("all_reduce", "broadcast", "reduce")


def bytes_sent(kind: str, size: float, partners: int) -> float:
    """Return how many bytes each card of a group sends on average in a collective."""
    if kind in ("send", "recv"):
        return size if kind == "send" else 0.0
    return (2 if kind in _TWICE else 1) * size * (partners - 1) / partners
