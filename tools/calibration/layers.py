"""Extrapolation of a deep model's workload from two shallow models with identical layers.

Each operation of a layer runs once per layer, and the optimizer's single operation grows with the
number of layers. Therefore, the workload of a deep model can be derived exactly from models with
two and four layers, which saves minutes of tracing.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from hpu_magic.estimates.cost.pricing import Workload
from hpu_magic.estimates.cost.quantities import Column, Operations, Products

SHALLOW, DEEPER = 2, 4

_COLUMNS = [each.name for each in fields(Operations)]
_OF_PRODUCTS = [each.name for each in fields(Products)][1:]
_PRODUCTS_AT_MOST = 2  # matmuls per operation; the backward pass of a convolution has two
# Columns that do not grow with the number of identical operations.
_SHARED = {"optimizer", "graph", "part", "rows", "columns"}
_TIMES = _COLUMNS.index("operators")
_GRAPH = _COLUMNS.index("graph")


def alike_added(step: Workload) -> Workload:
    """Merge the identical operations of a workload."""
    return _step(step, *_counted(step))


def deep(shallow: Workload, deeper: Workload, layers: int) -> Workload:
    """Extrapolate the workload from two and four layers to any number of layers."""
    each, counts = _counted(shallow)
    two, more = _counted(deeper)
    often = (layers - SHALLOW) / (DEEPER - SHALLOW)
    rows, places = np.unique(np.concatenate([each, two]), axis=0, return_inverse=True)
    places = places.ravel()
    total = np.bincount(places, np.concatenate([counts * (1 - often), more * often]))
    in_both = np.isin(np.arange(len(rows)), places[: len(each)])
    in_both &= np.isin(np.arange(len(rows)), places[len(each) :])
    grown = replace(
        shallow,
        gradients=round(shallow.gradients + often * (deeper.gradients - shallow.gradients)),
        gradient_tensors=round(
            shallow.gradient_tensors + often * (deeper.gradient_tensors - shallow.gradient_tensors)
        ),
        weights=round(shallow.weights + often * (deeper.weights - shallow.weights)),
    )
    # Operations that grow with the depth, like the optimizer's, occur in only one of the workloads.
    repeated = in_both & (total > 0)
    sums = [
        _sum(rows[wanted], total[wanted])
        for graph in np.unique(rows[~in_both, _GRAPH])
        for wanted in [~in_both & (rows[:, _GRAPH] == graph)]
    ]
    return _step(
        grown,
        np.concatenate([rows[repeated], *sums]),
        np.concatenate([total[repeated], np.ones(len(sums))]),
    )


def _sum(rows: Column, counts: Column) -> Column:
    """Return the sum of several rows."""
    extensive = np.array([name not in _SHARED for name in _names()])
    return np.where(extensive, counts @ rows, rows[0])[None]


def _counted(step: Workload) -> tuple[Column, Column]:
    """Return the distinct operations as rows, and how often each of them runs."""
    columns = [getattr(step.operations, name) for name in _COLUMNS]
    owner = step.products.owner
    first = np.concatenate([[True], owner[1:] != owner[:-1]])[: len(owner)]
    for wanted in (first, ~first):
        for name in _OF_PRODUCTS:
            column = np.zeros(len(columns[0]))
            column[owner[wanted]] = getattr(step.products, name)[wanted]
            columns.append(column)
    table = np.stack(columns, axis=1)
    table = table[table[:, _TIMES] > 0]
    times = table[:, _TIMES].copy()
    extensive = [name not in _SHARED for name in _names()]
    table[:, extensive] /= times[:, None]
    # Rounding makes the last digits of equal quotients differ.
    digits, exponents = np.frexp(table)
    table = np.ldexp(np.round(digits * 2**36) / 2**36, exponents)
    rows, places = np.unique(table, axis=0, return_inverse=True)
    return rows, np.bincount(places.ravel(), times)


def _step(like: Workload, rows: Column, counts: Column) -> Workload:
    extensive = np.array([name not in _SHARED for name in _names()])
    grown = rows * np.where(extensive, counts[:, None], 1.0)
    operations = Operations(*grown[:, : len(_COLUMNS)].T)
    found = []
    for place in range(_PRODUCTS_AT_MOST):
        start = len(_COLUMNS) + place * len(_OF_PRODUCTS)
        part = grown[:, start : start + len(_OF_PRODUCTS)]
        owners = np.flatnonzero(part[:, 0] > 0)
        found.append([owners, *part[owners].T])
    joined = [np.concatenate(each) for each in zip(*found, strict=True)]
    return replace(like, operations=operations, products=Products(*joined))


def _names() -> list[str]:
    return _COLUMNS + _OF_PRODUCTS * _PRODUCTS_AT_MOST
