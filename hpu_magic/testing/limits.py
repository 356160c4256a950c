"""Limits for tests on the device: operators that run on the CPU, and recompilations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import pytest

from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.ledger import Ledger
from hpu_magic.runtime.measure.ledger_report import COMPILATION, FALLBACK, LedgerReport

_MOST_NAMED = 4


@dataclass(frozen=True)
class Allowed:
    """The limits of a test. None means that there is no limit.

    `fallbacks` are the operators that are allowed to run on the CPU. `recompilations` is the
    maximum number of graphs that are compiled, not counting the first graph of each line.
    """

    fallbacks: Collection[str] | None = None
    recompilations: int | None = None

    @property
    def everything(self) -> bool:
        """Whether the test has no limits."""
        return self.fallbacks is None and self.recompilations is None


@dataclass
class Cost:
    """Number of fallbacks for each operator and line, and compilations for each line."""

    fallbacks: dict[tuple[str, str], int] = field(default_factory=dict)
    compilations: dict[str, list[str]] = field(default_factory=dict)
    """The input shapes of each line's graphs, in the order in which the graphs were compiled."""

    @classmethod
    def of(cls, report: LedgerReport, rank: str = "") -> Cost:
        """Return the cost recorded in a ledger. `rank` is appended to the name of each line."""
        cost = cls()
        lines: dict[str, int] = defaultdict(int)
        for cause in report.causes(FALLBACK):
            lines[cause.name] += cause.count
            cost.fallbacks[cause.name, _place(cause.where, rank)] = cause.count
        # The totals in the metrics also include events that are not attributed to any line.
        for operator, count in report.fallbacks.items():
            if missing := count - lines[operator]:
                cost.fallbacks[operator, _place("", rank)] = missing
        with_line = 0
        for cause in report.causes(COMPILATION):
            with_line += cause.count
            shapes = cost.compilations.setdefault(_place(cause.where, rank), [])
            shapes += [cause.shapes] * cause.count
        if missing := report.compilations - with_line:
            cost.compilations.setdefault(_place("", rank), []).extend([""] * missing)
        return cost

    def add(self, other: Cost) -> None:
        """Add the cost of another process."""
        self.fallbacks |= other.fallbacks
        for line, shapes in other.compilations.items():
            self.compilations.setdefault(line, []).extend(shapes)

    def objections(self, allowed: Allowed) -> Iterator[str]:
        """Yield a sentence for each exceeded limit."""
        if allowed.fallbacks is not None:
            calls = {key: n for key, n in self.fallbacks.items() if key[0] not in allowed.fallbacks}
            if calls:
                yield _fallen_back(calls)
        if allowed.recompilations is not None:
            again = {line: shapes for line, shapes in self.compilations.items() if len(shapes) > 1}
            count = sum(len(shapes) - 1 for shapes in again.values())
            if count > allowed.recompilations:
                yield _recompiled(again, count, allowed.recompilations)


_costs = pytest.StashKey[Cost]()


class Limits:
    """Checks each test's limits."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Record a ledger while a test runs, and fail the test if it exceeds a limit."""
        allowed = allowed_of(item)
        if allowed.everything:
            return (yield)
        device.torch_with_hpu()  # events are recorded only after the device has been loaded
        item.stash[_costs] = Cost()
        with Ledger() as report:
            result = yield
        cost = item.stash[_costs]
        cost.add(Cost.of(report))
        objections = list(cost.objections(allowed))
        if objections:
            pytest.fail(" ".join(objections), pytrace=False)
        return result


def add_cost(item: pytest.Item, cost: Cost) -> None:
    """Add another process's cost to that of a running test."""
    if _costs in item.stash:
        item.stash[_costs].add(cost)


def allowed_of(item: pytest.Item) -> Allowed:
    """Return a test's limits, as specified by its markers or on the command line.

    Fail the test if the arguments of a marker are invalid.
    """
    options = item.config.option
    fallbacks: Collection[str] | None = () if options.hpu_no_fallback else None
    recompilations: int | None = options.hpu_max_recompilations
    if marker := item.get_closest_marker("hpu_no_fallback"):
        fallbacks = _operators(item, marker)
    if marker := item.get_closest_marker("hpu_max_recompilations"):
        recompilations = _number(item, marker)
    return Allowed(fallbacks, recompilations)


def _operators(item: pytest.Item, marker: pytest.Mark) -> Collection[str]:
    allow = marker.kwargs.get("allow", ())
    names = [allow] if isinstance(allow, str) else list(allow)
    if marker.args or set(marker.kwargs) - {"allow"} or not all(isinstance(n, str) for n in names):
        pytest.fail(
            "The marker hpu_no_fallback accepts only operator names in allow, for example "
            'hpu_no_fallback(allow=["aten::linalg_qr.out"]).',
            pytrace=False,
        )
    return names


def _number(item: pytest.Item, marker: pytest.Mark) -> int | None:
    values = [*marker.args, *marker.kwargs.values()]
    fits = len(values) == 1 and not set(marker.kwargs) - {"n"}
    if fits and (values[0] is None or (type(values[0]) is int and values[0] >= 0)):
        return values[0]  # type: ignore[no-any-return]
    pytest.fail(
        "The argument of the marker hpu_max_recompilations is invalid; use an integer of at least "
        "0, or None for no limit.",
        pytrace=False,
    )


def _place(where: str, rank: str) -> str:
    return ", ".join(filter(None, (where, rank)))


def _fallen_back(calls: dict[tuple[str, str], int]) -> str:
    operators = {name for name, _ in calls}
    count = "1 operator" if len(operators) == 1 else f"{len(operators)} operators"
    items = (
        f"{name}{f' in {where}' if where else ''}{f' ({n} times)' if n > 1 else ''}"
        for (name, where), n in sorted(calls.items())
    )
    return f"{count} ran on the CPU because the device has no kernel: {_some(items)}."


def _recompiled(again: dict[str, list[str]], count: int, limit: int) -> str:
    times = "once" if count == 1 else f"{count} times"
    items = (
        f"{where or 'unknown lines'} compiled {len(shapes)} graphs{_for_shapes(shapes)}"
        for where, shapes in again.items()
    )
    return f"Graphs were recompiled {times} (limit {limit}): {_some(items)}."


def _for_shapes(shapes: Iterable[str]) -> str:
    distinct = [f"({text})" for text in dict.fromkeys(shapes) if text]
    return f" with inputs of {' and '.join(distinct[:_MOST_NAMED])}" if distinct else ""


def _some(items: Iterable[str]) -> str:
    named = list(items)
    more = len(named) - _MOST_NAMED
    return "; ".join(named[:_MOST_NAMED] + ([f"{more} more"] if more > 0 else []))
