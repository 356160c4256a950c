"""Tables of other libraries' features and names, which the site appends to the pages about them."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

from website.text import table

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "huggingface"))

from features import FEATURES, Feature, Status, proofs


def lightning_habana() -> str:
    """Return the table of lightning_habana's names for ``docs/lightning_habana.md``."""
    from hpu_magic.lightning.habana import counterparts

    rows = [
        (
            f"`{name.name}`",
            ", ".join(f"`{module}`" for module in name.modules),
            f"`{name.here}`",
            name.note,
        )
        for name in counterparts()
    ]
    return table(("name", "modules", "replacement", "notes"), rows)


def huggingface() -> str:
    """Return the tables of features for ``docs/huggingface.md``."""
    parts = [f"## Number of features\n\n{_counts()}"]
    tests: dict[tuple[str, str], list[str]] = {}
    for library, name, test in proofs():
        tests.setdefault((library, name), []).append(test)
    for library, features in itertools.groupby(FEATURES, lambda feature: feature.library):
        rows = [_row(feature, tests.get((library, feature.name), [])) for feature in features]
        parts.append(f"## {library}\n\n{table(('feature', 'status', 'notes', 'test'), rows)}")
    return "\n".join(parts)


def _counts() -> str:
    counts = Counter((feature.library, feature.status) for feature in FEATURES)
    rows = [
        (library, *(str(counts[library, status]) for status in Status))
        for library in dict.fromkeys(feature.library for feature in FEATURES)
    ]
    return table(("", *(status.value for status in Status)), rows)


def _row(feature: Feature, tests: list[str]) -> tuple[str, str, str, str]:
    proof = "<br>".join(f"`{test}`" for test in tests)
    return feature.name, feature.status.value, feature.note, proof
