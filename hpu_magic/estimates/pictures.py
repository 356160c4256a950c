"""Plot an estimate's memory usage over one step and its time by module."""

from __future__ import annotations

from collections.abc import Sequence

from hpu_magic import units
from hpu_magic.estimates.by_module import ModuleShare, alike
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import Prices
from hpu_magic.estimates.tracing.program import Phase, Program
from hpu_magic.runtime.present import bars, drawing

_WIDTH, _HEIGHT = 760, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 22, 24
_POINTS = 380
_BARS = 8


def memory_picture(program: Program, prices: Prices, card: Generation, curve: Sequence[int]) -> str:
    """Return an SVG plot of memory usage over a step, relative to the card's memory."""
    if not curve:
        return ""
    seconds = [cost.seconds for cost in prices.operations]
    ends, total = [], 0.0
    for duration in seconds:
        total += duration
        ends.append(total)
    top = max(curve)
    if top * 3 > card.memory:
        top = max(top, card.memory)
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
    if card.memory <= axis[-1] * scale:
        level = y(card.memory)
        parts.append(drawing.rule(_LEFT, level, _WIDTH - _RIGHT, level, 0.9, bars.MARK, "4 3"))
        parts.append(drawing.text(_WIDTH - _RIGHT, level - 4, "limit", "end", 10, bars.MARK))
    stride = max(1, len(curve) // _POINTS)
    points = [f"{x(0.0):.1f},{floor:.1f}"]
    for start in range(0, len(curve), stride):  # the maximum of each interval
        stop = min(start + stride, len(curve))
        begin = ends[start - 1] if start else 0.0
        most = y(max(curve[start:stop]))
        points += [f"{x(begin):.1f},{most:.1f}", f"{x(ends[stop - 1]):.1f},{most:.1f}"]
    points.append(f"{x(total):.1f},{floor:.1f}")
    parts.append(f'<polygon points="{" ".join(points)}" fill="{bars.BAR}" fill-opacity="0.6"/>')
    for phase, place in _phases(program, ends):
        parts.append(drawing.text(x(place), _HEIGHT - 8, phase, "middle", 10))
    description = f"The peak is {units.size(max(curve))}."
    return drawing.image(_WIDTH, _HEIGHT, parts, "Memory over one step, estimated", description)


def modules_picture(modules: ModuleShare) -> str:
    """Return an SVG plot of the time that the slowest modules take."""
    total = modules.seconds
    leaves = list(alike(modules).items())[:_BARS]
    if not leaves or not total:
        return ""
    shown = [
        (leaf.name, 100 * leaf.seconds / total, 100 * leaf.limits[leaf.limit] / total)
        for _, leaf in leaves
    ]
    return bars.draw(shown, "time (estimate)", "part of its main limit", " %")


def _phases(program: Program, ends: list[float]) -> list[tuple[str, float]]:
    """Return the name and the midpoint of each phase of the step."""
    spans: dict[str, list[float]] = {}
    begin = 0.0
    for operation, end in zip(program.operations, ends, strict=True):
        phase = Phase.BACKWARD if operation.phase is Phase.RECOMPUTED else operation.phase
        span = spans.setdefault(phase.value, [begin, end])
        span[1] = end
        begin = end
    least = 0.06 * (ends[-1] if ends else 0.0)
    return [(name, (a + b) / 2) for name, (a, b) in spans.items() if b - a >= least]
