"""The table of results on the documentation page."""

from __future__ import annotations

from pathlib import Path

from deepspeed_table.features import FEATURES, Feature

PAGE = Path(__file__).parents[2] / "docs" / "deepspeed.md"
HEADER = "| feature | cards | compared with | result |\n|---|---|---|---|\n"


def update(feature: Feature, sentence: str, page: Path = PAGE) -> None:
    """Write the row of a feature, in the order of `FEATURES`."""
    before, _, after = page.read_text().partition(HEADER)
    rows, rest = _rows(after)
    cards = max(each.ranks for each in feature.phases)
    sentence = " ".join(sentence.replace("|", "/").split())
    rows[feature.name] = f"| {feature.name} | {cards} | {_compared_with(feature)} | {sentence} |\n"
    listed = "".join(rows[each.name] for each in FEATURES if each.name in rows)
    page.write_text(f"{before}{HEADER}{listed}{rest}")


def listed(page: Path = PAGE) -> list[str]:
    """Return the feature names in the table."""
    return [*_rows(page.read_text().partition(HEADER)[2])[0]]


def _rows(text: str) -> tuple[dict[str, str], str]:
    """Return the rows at the start of a text by their feature, and the rest of the text."""
    rows: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("| "):
        line = lines.pop(0)
        rows[line.split("|")[1].strip()] = line
    return rows, "".join(lines)


def _compared_with(feature: Feature) -> str:
    if feature.alone:
        return "-"
    if feature.against:
        return feature.against
    if feature.compared == "hpu":
        return f"{feature.reference} on cards"
    return f"{feature.reference} on the CPU" if feature.reference else "the CPU"
