"""Pictures of an estimate: memory over one step, and time by module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpu_magic import units
from hpu_magic.estimates.by_module import alike
from hpu_magic.estimates.tracing.program import Phase
from hpu_magic.runtime.present import bars, drawing

if TYPE_CHECKING:
    from hpu_magic.estimates.result import Estimate

_WIDTH, _HEIGHT = 760, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 22, 24
_POINTS = 380
_BARS = 8


def memory_picture(estimate: Estimate) -> str:
    """Return the memory in use over the step as SVG, with what a card has."""
    curve = estimate.memory_curve
    if not curve:
        return ""
    seconds = [one.seconds for one in estimate.prices.operations]
    ends, total = [], 0.0
    for one in seconds:
        total += one
        ends.append(total)
    top = max(
        max(curve), estimate.card.memory if estimate.peak_memory * 3 > estimate.card.memory else 0
    )
    scale, unit = units.size_unit(top)
    axis = drawing.round_numbers(0.0, top / scale, 4)
    floor = _HEIGHT - _BOTTOM

    def x(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (time / total if total else 0.0)

    def y(count: float) -> float:
        return floor - (floor - _TOP) * count / scale / axis[-1]

    parts = [drawing.text(_LEFT, 14, f"memory of a card over one step (estimate), {unit}")]
    for tick in axis:
        parts.append(drawing.rule(_LEFT, y(tick * scale), _WIDTH - _RIGHT, y(tick * scale), 0.3))
        parts.append(drawing.text(_LEFT - 6, y(tick * scale) + 4, f"{tick:g}", "end", 10))
    if estimate.card.memory <= axis[-1] * scale:
        level = y(estimate.card.memory)
        parts.append(drawing.rule(_LEFT, level, _WIDTH - _RIGHT, level, 0.9, bars.MARK, "4 3"))
        parts.append(drawing.text(_WIDTH - _RIGHT, level - 4, "all of it", "end", 10, bars.MARK))
    stride = max(1, len(curve) // _POINTS)
    points = [f"{x(0.0):.1f},{floor:.1f}"]
    for start in range(0, len(curve), stride):  # the highest of each stretch, so that none is lost
        stop = min(start + stride, len(curve))
        begin = ends[start - 1] if start else 0.0
        most = y(max(curve[start:stop]))
        points += [f"{x(begin):.1f},{most:.1f}", f"{x(ends[stop - 1]):.1f},{most:.1f}"]
    points.append(f"{x(total):.1f},{floor:.1f}")
    parts.append(f'<polygon points="{" ".join(points)}" fill="{bars.BAR}" fill-opacity="0.6"/>')
    for phase, place in _phases(estimate, ends):
        parts.append(drawing.text(x(place), _HEIGHT - 8, phase, "middle", 10))
    described = f"At most {units.size(max(curve))}."
    return drawing.image(_WIDTH, _HEIGHT, parts, "Memory over one step, estimated", described)


def modules_picture(estimate: Estimate) -> str:
    """Return the time of the slowest modules as SVG."""
    total = estimate.modules.seconds
    leaves = list(alike(estimate.modules).items())[:_BARS]
    if not leaves or not total:
        return ""
    shown = [
        (one.name, 100 * one.seconds / total, 100 * one.limits[one.limit] / total)
        for _, one in leaves
    ]
    return bars.draw(shown, "time (estimate)", "of which by what bounds it most", " %")


def _phases(estimate: Estimate, ends: list[float]) -> list[tuple[str, float]]:
    """Return each phase's name and the middle of its time."""
    spans: dict[str, list[float]] = {}
    begin = 0.0
    for operation, end in zip(estimate.program.operations, ends, strict=True):
        phase = Phase.BACKWARD if operation.phase is Phase.RECOMPUTED else operation.phase
        span = spans.setdefault(phase.value, [begin, end])
        span[1] = end
        begin = end
    least = 0.06 * (ends[-1] if ends else 0.0)
    return [(name, (a + b) / 2) for name, (a, b) in spans.items() if b - a >= least]
