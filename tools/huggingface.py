"""Writes docs/huggingface.md from the features that the tests prove: ``make tables``."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "huggingface.md"
sys.path.insert(0, str(_ROOT / "tests" / "huggingface"))

from features import FEATURES, Feature, Status, proofs  # noqa: E402  (needs the path above)

_HEAD = """\
# Hugging Face libraries

Your own script runs unchanged: `Trainer`, `generate`, `pipeline`, `Accelerator()` and
`device_map="auto"` find the card by themselves, `HPU_MAGIC_SIMULATOR=1 accelerate launch
--num_processes 2 train.py` takes two, and `PT_HPU_LAZY_MODE=1` chooses lazy mode.

Written by `make tables` from `tests/huggingface/features.py`. Each row names the test in
`tests/huggingface/` that proves it, with tiny models of random weights.

**runs**: the program for a card runs unchanged, and gives what it gives on the CPU with the same
seed, within the type's precision; **differs**: it runs, with the difference that is named;
**refused**: it ends with an error that says why.
"""


def page() -> str:
    """Return the page's text."""
    parts = [_HEAD, _counts()]
    tests: dict[tuple[str, str], list[str]] = {}
    for library, name, test in proofs():
        tests.setdefault((library, name), []).append(test)
    for library, features in itertools.groupby(FEATURES, lambda feature: feature.library):
        rows = [_row(feature, tests.get((library, feature.name), [])) for feature in features]
        head = "| feature | status | what is particular | test |\n|---|---|---|---|\n"
        parts.append(f"## {library}\n\n{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _counts() -> str:
    lines = ["| | " + " | ".join(status.value for status in Status) + " |", "|---|---|---|---|"]
    for library in dict.fromkeys(feature.library for feature in FEATURES):
        count = Counter(each.status for each in FEATURES if each.library == library)
        lines.append(f"| {library} | " + " | ".join(str(count[each]) for each in Status) + " |")
    return "\n".join(lines) + "\n"


def _row(feature: Feature, tests: list[str]) -> str:
    proof = "<br>".join(f"`{test}`" for test in tests)
    return f"| {feature.name} | {feature.status.value} | {feature.note} | {proof} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} is written.")
