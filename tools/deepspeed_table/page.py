"""The table of results on the documentation page."""

from __future__ import annotations

from pathlib import Path

from page_table import PageTable

from deepspeed_table.features import FEATURES, Feature

TABLE = PageTable(
    Path(__file__).parents[2] / "docs" / "deepspeed.md",
    ("feature", "cards", "compared with", "result"),
    [each.name for each in FEATURES],
)


def row(feature: Feature, sentence: str) -> tuple[str, str, str, str]:
    """Return the row of a feature with its result."""
    cards = max(each.ranks for each in feature.phases)
    return feature.name, str(cards), _compared_with(feature), sentence


def _compared_with(feature: Feature) -> str:
    if feature.alone:
        return "-"
    if feature.against:
        return feature.against
    if feature.compared == "hpu":
        return f"{feature.reference} on cards"
    return f"{feature.reference} on the CPU" if feature.reference else "the CPU"
