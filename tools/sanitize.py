"""Run the suites of the simulated device on an engine built with sanitizers.

``make sanitize`` builds it with AddressSanitizer and UndefinedBehaviorSanitizer, which end a
process at the first wrong access or undefined operation, and with a check of the order of locks.
What ran and what came of it is written to docs/checks.md.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "checks.md"
SANITIZERS = "address,undefined"
DEVICE = "tests/simulator/device"
# Of PyTorch's operator database some families: all of it takes hours with sanitizers.
OPERATORS = "not test_operator_equals_the_cpu or conv or norm or index or view or resize or cat"

# Suite, lazy mode, what pytest gets.
SUITES = [
    ("device", False, [DEVICE, "-k", OPERATORS]),
    ("device, lazy mode", True, [DEVICE, "-k", OPERATORS]),
    ("graphs", False, ["tests/simulator/graphs"]),
    ("compiled programs", False, ["tests/simulator/compile"]),
]


@dataclass(frozen=True)
class Outcome:
    """What a suite came to."""

    suite: str
    passed: int
    skipped: int
    failed: int
    seconds: float


def environment(lazy: bool) -> dict[str, str]:
    """Environment of a process that loads the sanitized engine."""
    return {
        **os.environ,
        "HPU_MAGIC_SANITIZE": SANITIZERS,
        # Its own functions must come first, also before those of an interpreter without them.
        "LD_PRELOAD": _runtime("libasan.so"),
        # Python and PyTorch leave what they hold to the end of the process.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_NUM_THREADS": "1",
        **({"HPU_MAGIC_TEST_LAZY": "1"} if lazy else {}),
    }


def _runtime(name: str) -> str:
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"{compiler} has no {name}: install the sanitizers' libraries of your compiler.")
    return found


def run(suite: str, lazy: bool, arguments: list[str]) -> Outcome:
    """Run one suite."""
    began = time.monotonic()
    with TemporaryDirectory() as place:
        results = Path(place) / "results.xml"
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *arguments],
            cwd=ROOT,
            env=environment(lazy),
            check=False,
        )
        seconds = time.monotonic() - began
        if not results.exists():  # the process itself ended
            return Outcome(suite, 0, 0, 1, seconds)
        counts = next(ElementTree.parse(results).iter("testsuite")).attrib
    failed = int(counts["failures"]) + int(counts["errors"])
    skipped = int(counts["skipped"])
    return Outcome(suite, int(counts["tests"]) - failed - skipped, skipped, failed, seconds)


def report(outcomes: list[Outcome]) -> str:
    """Return the text of docs/checks.md."""
    import torch

    compiler = os.environ.get("CXX", "c++")
    asked = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    version = asked.stdout.partition("\n")[0]
    rows = "\n".join(
        f"| {each.suite} | {each.passed} | {each.skipped} | {each.failed} |"
        f" {each.seconds / 60:.0f} min | {'failed' if each.failed else 'clean'} |"
        for each in outcomes
    )
    return f"""# Checks of the engine

Written by `make sanitize`: the suites of the simulated device on an engine that is built with
AddressSanitizer and UndefinedBehaviorSanitizer (`-fsanitize={SANITIZERS}`, without `vptr`, which
PyTorch's libraries do not allow) and that checks the order in which its locks are taken. Leaks are
not looked for, since Python and PyTorch leave theirs to the end of the process. Nothing is
suppressed.

torch {torch.__version__}, Python {platform.python_version()}, {version}.

| suite | passed | skipped | failed | took | |
|---|---|---|---|---|---|
{rows}
"""


def main() -> None:
    """Build, run every suite, write the table; the exit status says whether all is clean."""
    # The compiler runs without the sanitizer's library.
    build = "from hpu_magic.simulator.engine import compiled; print(compiled())"
    subprocess.run(
        [sys.executable, "-c", build],
        cwd=ROOT,
        env={**os.environ, "HPU_MAGIC_SANITIZE": SANITIZERS},
        check=True,
    )
    outcomes = [run(*suite) for suite in SUITES]
    REPORT.write_text(report(outcomes))
    print(REPORT.read_text())
    sys.exit(any(each.failed for each in outcomes))


if __name__ == "__main__":
    main()
