"""Differences between the card time of steps and their estimates, as a row of a table."""

from __future__ import annotations

import statistics

LARGEST = 0.02
COLUMNS = ("within 2%", "median difference", "largest difference", "others")


def row(differences: dict[str, float]) -> tuple[str, ...]:
    """Return the cells of the columns for the relative differences of the steps."""
    sizes = [abs(each) for each in differences.values()]
    beyond = others(differences)
    return (
        f"{len(sizes) - len(beyond)} of {len(sizes)}",
        f"{statistics.median(sizes):.1%}",
        f"{max(sizes):.1%}",
        ", ".join(f"{name} {each:+.0%}" for name, each in beyond.items()) or "none",
    )


def others(differences: dict[str, float]) -> dict[str, float]:
    """Return the differences of the steps that do not agree."""
    return {name: each for name, each in differences.items() if abs(each) > LARGEST}
