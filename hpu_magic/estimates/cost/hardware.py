"""Published specifications of each card generation."""

from __future__ import annotations

from dataclasses import dataclass

from hpu_magic.errors import choice
from hpu_magic.estimates.errors import EstimateError

GIB = 2**30

# An all-reduce of at least 32 MiB on eight Gaudi2 cards achieves 258.2 GB/s of a peak of 262.5
# GB/s.
LINK_EFFICIENCY = 0.98


@dataclass(frozen=True)
class Generation:
    """The specifications of one card generation; comments on the values state their sources."""

    name: str
    card: str
    matrix_flops: dict[str, float]
    """Peak rate of all matrix engines, in FLOP/s, by operand dtype."""
    matrix_engines: int
    array: tuple[int, int]
    """Rows and columns of an engine's multiplier array."""
    array_shapes: tuple[tuple[int, int], ...]
    """Shapes of the output tiles that one engine can compute in one pass."""
    vector_flops: float
    """Peak rate of all vector processors in bf16, in FLOP/s; the float32 rate is half of it."""
    memory_bandwidth: float
    """HBM bandwidth, in bytes/s."""
    memory: int
    """Bytes that a process can allocate, reported as `Limit` by `memory_stats`."""
    sram: int
    """Size in bytes of the on-die memory shared by all engines."""
    pair_bandwidth: float
    """Unidirectional bandwidth of the links between two cards of a machine, in bytes/s."""
    scale_out_bandwidth: float
    """Unidirectional bandwidth of a card's links to other machines, in bytes/s."""
    host_bandwidth: float
    """Peak bandwidth of copies from or to the host in one direction, in bytes/s."""
    cards_per_machine: int = 8

    @property
    def has_fp8(self) -> bool:
        """Whether the matrix engines support FP8."""
        return "fp8" in self.matrix_flops


# The peak rates, memory sizes, bandwidths and links are from "Intel Gaudi 3" at Hot Chips 2024,
# which states PCIe bandwidth for both directions together, and the vendor's page "Network
# Configuration". The memory limits are reported by `memory_stats` since release 1.17 on Gaudi2
# (94.62 GiB) and by later releases on Gaudi (29.47 GiB) and Gaudi3 (126.5 GiB). A vector processor
# has 128 bf16 lanes, each with one multiplication and one addition per cycle. Gaudi2 has 24 vector
# processors at 1.65 GHz, and Gaudi3 has 64 at 1.75 GHz. The float32 peak of the matrix engines is
# not published; a quarter of the bf16 peak is assumed.
GENERATIONS: dict[str, Generation] = {
    "gaudi": Generation(
        name="gaudi",
        card="HL-205",
        matrix_flops={"bf16": 60e12, "fp32": 15e12},  # a vendor slide states 60 to 80 TFLOPS
        matrix_engines=2,
        array=(128, 128),  # not published; derived from the peak and the clock rate
        array_shapes=((128, 128),),
        vector_flops=8 * 128 * 2 * 1.35e9,  # eight processors; the clock rate is not published
        memory_bandwidth=0.9e12,
        memory=int(29.47 * GIB),
        sram=24 * 10**6,
        pair_bandwidth=12.5e9,
        scale_out_bandwidth=37.5e9,
        host_bandwidth=32e9,
    ),
    "gaudi2": Generation(
        name="gaudi2",
        card="HL-225",
        matrix_flops={"bf16": 432e12, "fp8": 865e12, "fp32": 108e12},
        matrix_engines=2,
        array=(256, 256),
        array_shapes=((256, 256), (128, 512), (512, 128)),
        vector_flops=24 * 128 * 2 * 1.65e9,
        memory_bandwidth=2.45e12,
        memory=int(94.62 * GIB),
        sram=48 * 10**6,
        pair_bandwidth=37.5e9,
        scale_out_bandwidth=37.5e9,
        host_bandwidth=32e9,
    ),
    "gaudi3": Generation(
        name="gaudi3",
        card="HL-325",
        matrix_flops={"bf16": 1835e12, "fp8": 1835e12, "fp32": 459e12},  # fp8 is not faster
        matrix_engines=8,
        array=(256, 256),
        array_shapes=((256, 256), (128, 512), (512, 128)),
        vector_flops=64 * 128 * 2 * 1.75e9,
        memory_bandwidth=3.67e12,
        memory=int(126.5 * GIB),
        sram=96 * 10**6,
        pair_bandwidth=75e9,
        scale_out_bandwidth=75e9,
        host_bandwidth=64e9,
    ),
}


def generation_named(name: str) -> Generation:
    """Return the generation for a name such as ``"gaudi2"``, ``"Gaudi 2"`` or ``"G2"``."""
    chosen = choice(name, GENERATIONS)
    if chosen is None:
        raise EstimateError(f"card={name!r} is unknown: use {', '.join(GENERATIONS)}.")
    return GENERATIONS[chosen]
