"""The order of tests, and which of them run in the same process."""

from collections import Counter
from pathlib import Path

import pytest

SPREAD = (
    "test_operators",
    "test_modes",
    "test_compiled_operators",
    "test_compiled_memory_formats",
)
"""Long files whose tests do not share fixtures, so that several processes can run them."""

# Folders with the longest files. Their tests start first, so that no worker is alone at the end.
_LONG = {
    "distributed",
    "dry_runs",
    "estimates",
    "examples",
    "front_ends",
    "huggingface",
    "lightning",
    "notebooks",
    "parallel",
    "serving",
    "testing",
}


def sort_by_length(items: list[pytest.Item]) -> None:
    """Sort tests so that those of the longest files start first."""
    sizes = Counter(item.path for item in items)

    def key(item: pytest.Item) -> tuple[bool, bool, int]:
        path = item.path
        return path.stem in SPREAD, path.parent.name not in _LONG, -sizes[path]

    items.sort(key=key)


def scope(item: pytest.Item) -> str | Path:
    """Return a value that is equal for tests of one process."""
    return item.nodeid if item.path.stem in SPREAD else item.path
