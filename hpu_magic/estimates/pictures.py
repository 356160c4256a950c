"""Plot an estimate's memory usage over one step and its time by module."""

from __future__ import annotations

from collections.abc import Sequence

from hpu_magic import units
from hpu_magic.estimates.by_module import ModuleShare, alike
from hpu_magic.estimates.cost.hardware import Generation
from hpu_magic.estimates.cost.pricing import Prices
from hpu_magic.estimates.tracing.program import Phase, Program
from hpu_magic.runtime.present import bars, drawing

_WIDTH, _HEIGHT = 760, 182
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 34, 24
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
    return memory_plot("over one step (estimate)", curve, ends, card.memory, _phases(program, ends))


def memory_plot(
    when: str,
    curve: Sequence[int],
    ends: Sequence[float],
    limit: int,
    labels: Sequence[tuple[str, float]] = (),
) -> str:
    """Return an SVG plot of a card's memory usage, whose peak is marked.

    Parameters
    ----------
    when
        Words for the title.
    curve
        Bytes in use during each interval.
    ends
        End of each interval; the first begins at 0.
    limit
        Bytes of memory that can be used.
    labels
        Texts below the plot, and their positions in the unit of `ends`.
    """
    top, total = max(curve), ends[-1]
    if top * 3 > limit:
        top = max(top, limit)
    scale, unit = units.size_unit(top)
    axis = drawing.round_numbers(0.0, top / scale, 4)
    floor = _HEIGHT - _BOTTOM

    def x(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (time / total if total else 0.0)

    def y(count: float) -> float:
        return floor - (floor - _TOP) * count / scale / axis[-1]

    peak = max(range(len(curve)), key=curve.__getitem__)
    time = ends[peak]
    parts = [drawing.text(_LEFT, 14, f"memory of a card {when}, {unit}")]
    for tick in axis:
        parts.append(drawing.rule(_LEFT, y(tick * scale), _WIDTH - _RIGHT, y(tick * scale), 0.3))
        parts.append(drawing.text(_LEFT - 6, y(tick * scale) + 4, f"{tick:g}", "end", 10))
    if limit <= axis[-1] * scale:
        level = y(limit)
        parts.append(drawing.rule(_LEFT, level, _WIDTH - _RIGHT, level, 0.9, bars.MARK, "4 3"))
        # The label is on the other side than the label of the peak.
        side, anchor = (_WIDTH - _RIGHT, "end") if _is_left(x(time)) else (_LEFT + 4, "start")
        parts.append(drawing.text(side, level - 4, "limit", anchor, 10, bars.MARK))
    stride = max(1, len(curve) // _POINTS)
    points = [f"{x(0.0):.1f},{floor:.1f}"]
    for start in range(0, len(curve), stride):  # the maximum of each interval
        stop = min(start + stride, len(curve))
        begin = ends[start - 1] if start else 0.0
        most = y(max(curve[start:stop]))
        points += [f"{x(begin):.1f},{most:.1f}", f"{x(ends[stop - 1]):.1f},{most:.1f}"]
    points.append(f"{x(total):.1f},{floor:.1f}")
    parts.append(f'<polygon points="{" ".join(points)}" fill="{bars.BAR}" fill-opacity="0.6"/>')
    parts += _marked(x(time), y(curve[peak]), f"peak: {units.size(curve[peak])}")
    for label, place in labels:
        parts.append(drawing.text(x(place), _HEIGHT - 8, label, "middle", 10))
    description = f"The peak is {units.size(max(curve))}."
    return drawing.image(_WIDTH, _HEIGHT, parts, f"Memory {when}", description)


def _marked(x: float, y: float, words: str) -> list[str]:
    """Return a dot, and a text next to it on the side that has space for it."""
    is_left = _is_left(x)
    place = x + 7 if is_left else x - 7
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{bars.MARK}"/>',
        drawing.text(place, y - 4, words, "start" if is_left else "end", 10),
    ]


def _is_left(x: float) -> bool:
    return x < _WIDTH / 2


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
