"""Run DeepSpeed's features on simulated cards, compare them, and update the page's table.

``python tools/deepspeed_table [WORD ...]`` runs all features, or those whose name contains a word.
The numbers of all ranks, such as losses, are compared with those of DeepSpeed's CPU accelerator or
of another feature. The exit code is 1 if a feature fails.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from deepspeed_table.features import FEATURES, Feature  # noqa: E402 (needs the path above)
from deepspeed_table.page import TABLE, row  # noqa: E402
from deepspeed_table.processes import Processes, Result  # noqa: E402


def main(arguments: list[str]) -> int:
    """Run the features, print and write a row for each, and return 1 if one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    words = [word.lower() for word in parser.parse_args(arguments).words]
    features = [
        each for each in FEATURES if not words or any(w in each.name.lower() for w in words)
    ]
    if not features:
        print(f"No feature contains {' or '.join(words)}; use part of a name.")
        return 2
    processes = Processes()
    failed = 0
    try:
        for feature in features:
            started = time.monotonic()
            good, sentence = _judged(processes, feature)
            failed += not good
            TABLE.update(row(feature, sentence))
            seconds = time.monotonic() - started
            mark = "ok  " if good else "FAIL"
            print(f"{mark} {feature.name}: {sentence} ({seconds:.0f} s)", flush=True)
    finally:
        processes.close()
    print(f"{len(features)} features, {failed} failed", file=sys.stderr)
    return int(failed > 0)


def _judged(
    processes: Processes,
    feature: Feature,
    known: dict[tuple[str, str], Result] = {},  # noqa: B006
) -> tuple[bool, str]:
    """Run a feature and its reference, each at most once, and return the result."""

    def run(name: str, accelerator: str) -> Result:
        if (name, accelerator) not in known:
            [found] = [each for each in FEATURES if each.name == name]
            known[name, accelerator] = processes.run(found, accelerator)
        return known[name, accelerator]

    there = Result() if feature.alone else run(feature.reference or feature.name, feature.compared)
    return judge(feature, run(feature.name, "hpu"), there)


def judge(feature: Feature, here: Result, there: Result) -> tuple[bool, str]:
    """Return whether a row is good, and the sentence in its last column."""
    if limit := feature.limit:
        if not here.error:
            return False, f"works, although {limit.reason}"
        if limit.error not in here.error:
            return False, f"fails: {here.error}"
        if not (feature.alone or there.error):
            return False, f"the reference works, although {limit.reason}"
        return True, f"not possible: {limit.reason}"
    if here.error:
        return False, f"fails: {here.error}"
    if there.error:
        return False, f"works, but the reference fails: {there.error}"
    if feature.alone:
        return True, "works"
    difference = relative(here.numbers, there.numbers)
    compared = f"{difference:.1e} of {len(here.numbers)} numbers"
    return difference <= feature.tolerance, compared


def relative(numbers: tuple[float, ...], expected: tuple[float, ...]) -> float:
    """Return the largest difference relative to the expected number; infinity if counts differ."""
    if len(numbers) != len(expected) or not numbers or not all(map(math.isfinite, numbers)):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-2) for a, b in zip(numbers, expected, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
