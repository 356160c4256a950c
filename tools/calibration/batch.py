"""Store all workloads in a few arrays, so that a fit takes seconds instead of minutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from calibration.measurements import Job
from hpu_magic.estimates.cost.constants import Constants
from hpu_magic.estimates.cost.pricing import Workload, exchanged, seconds_of
from hpu_magic.estimates.cost.quantities import Column, Operations, Products


@dataclass(frozen=True)
class _Group:
    """Workloads for which an operation takes the same time, because they run on the same card."""

    workload: Workload
    """One workload with the operations of all workloads."""
    times: Column
    """How often each operation runs per step."""
    owners: npt.NDArray[np.int64]
    """Index of each operation's workload in the group."""
    steps: npt.NDArray[np.int64]
    """Index of each workload among all workloads."""


class Batch:
    """Estimates all jobs at once, with the same results as `Job.estimate`."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        steps = [step for job in jobs for step, _ in job.steps]
        self._times = np.array([times for job in jobs for _, times in job.steps])
        counts = [len(job.steps) for job in jobs]
        self._firsts = np.cumsum([0, *counts[:-1]])
        self._amounts = np.array([job.amount for job in jobs])
        self._exchanging = [
            (number, step)
            for number, step in enumerate(steps)
            if step.layout.data > 1 and step.gradients
        ]
        self._pipeline = np.array([float(step.layout.pipeline) for step in steps])
        self._accumulate = np.array([float(step.accumulate) for step in steps])
        alike: dict[tuple[str, bool, int], list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            alike[step.card.name, step.eager, step.layout.tensor].append(number)
        self._groups = [_group(steps, np.array(numbers)) for numbers in alike.values()]

    def estimates(self, constants: Constants) -> Column:
        """Return the estimated figure of each job."""
        busy = np.zeros(len(self._times))
        for group in self._groups:
            busy[group.steps] = _busy(group, constants)
        seconds = busy / self._pipeline
        seconds += seconds * (self._pipeline - 1) / self._accumulate
        for number, step in self._exchanging:
            seconds[number] += exchanged(step, constants)
        total: Column = np.add.reduceat(self._times * seconds, self._firsts)
        return np.where(self._amounts > 0, self._amounts / total, total)


def _group(steps: Sequence[Workload], numbers: npt.NDArray[np.int64]) -> _Group:
    columns: dict[str, list[Column]] = defaultdict(list)
    products: dict[str, list[Column]] = defaultdict(list)
    times, owners, size = [], [], 0
    for place, number in enumerate(numbers):
        step = steps[number]
        for each in fields(Operations):
            columns[each.name].append(getattr(step.operations, each.name))
        for each in fields(Products):
            values = getattr(step.products, each.name)
            products[each.name].append(values + size if each.name == "owner" else values)
        times.append(np.where(step.operations.optimizer > 0, 1.0, float(step.accumulate)))
        owners.append(np.full(len(times[-1]), place))
        size += len(times[-1])
    whole = replace(
        steps[numbers[0]],
        operations=Operations(**{name: np.concatenate(each) for name, each in columns.items()}),
        products=Products(**{name: np.concatenate(each) for name, each in products.items()}),
    )
    return _Group(whole, np.concatenate(times), np.concatenate(owners), np.asarray(numbers))


def _busy(group: _Group, constants: Constants) -> Column:
    """Return the time of each workload's operations if a single card ran all of them."""
    columns = seconds_of(group.workload, constants)
    engines = np.stack([columns.matrix, columns.vector, columns.memory])
    others = (columns.links + columns.launch) * group.times
    if group.workload.eager:
        return _sums(group.owners, engines.max(axis=0) * group.times + others, len(group.steps))
    operations = group.workload.operations
    earlier = _in_parallel(group, engines * (group.times - 1), operations.graph)
    last = _in_parallel(group, engines, operations.part)
    return earlier + last + _sums(group.owners, others, len(group.steps))


def _in_parallel(group: _Group, engines: Column, graphs: Column) -> Column:
    """Return the time of each workload's graphs."""
    most = int(graphs.max()) + 1
    numbers = group.owners * most + graphs.astype(np.int64)
    size = len(group.steps) * most
    found = np.stack([_sums(numbers, engine, size) for engine in engines]).max(axis=0)
    total: Column = found.reshape(-1, most).sum(axis=1)
    return total


def _sums(numbers: npt.NDArray[np.int64], values: Column, size: int) -> Column:
    return np.bincount(numbers, values, size)
