"""Writes docs/huggingface.md from the features that tests check: ``make tables``."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "huggingface.md"
sys.path.insert(0, str(_ROOT / "tests" / "huggingface"))

from features import FEATURES, Feature, Status, proofs  # noqa: E402  (requires the path above)

_HEAD = """\
# Hugging Face libraries

Your own script runs unchanged: `Trainer`, `generate`, `pipeline`, `Accelerator()` and
`device_map="auto"` find the card automatically. To run on two simulated cards:

```sh
HPU_MAGIC_SIMULATOR=1 accelerate launch --num_processes 2 train.py
```

Set `PT_HPU_LAZY_MODE=1` for lazy mode.

## Status of features

Each row names the tests in `tests/huggingface/` that check a feature. They use tiny models with
random weights.

- **runs**: a program for a card runs unchanged. With the same seed, its results equal the CPU's
  within the precision of the type.
- **differs**: the program runs, with the difference in the notes.
- **refused**: the program ends with an error that names the reason.

`make tables` writes this page from `tests/huggingface/features.py`. Number of features:
"""


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, _counts()]
    tests: dict[tuple[str, str], list[str]] = {}
    for library, name, test in proofs():
        tests.setdefault((library, name), []).append(test)
    for library, features in itertools.groupby(FEATURES, lambda feature: feature.library):
        rows = [_row(feature, tests.get((library, feature.name), [])) for feature in features]
        head = "| feature | status | notes | test |\n|---|---|---|---|\n"
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
    print(f"Wrote {PAGE}.")
