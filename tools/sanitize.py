"""Run the test suites of the simulated device with an engine that is built with sanitizers.

``make sanitize`` builds it with AddressSanitizer and UndefinedBehaviorSanitizer, which end a
process at the first invalid access or undefined operation, and with checks of the lock order and of
the standard library's containers. The results are written to docs/checks.md.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "checks.md"
SANITIZERS = "address,undefined"
WORKERS = os.environ.get("WORKERS", "2")
# A thread that hangs in the engine ignores signals, so the worker is killed. The worker is not
# replaced, because a new one would hang as well, waiting for the tests of its group.
PYTEST = ("--timeout=900", "--timeout-method=thread", "--max-worker-restart=0")

DEVICE = "tests/simulator/device"
# Some families from PyTorch's operator database, because testing all operators would take hours.
FAMILIES = ("conv", "norm", "index", "view", "resize", "cat")
OPERATORS = " or ".join(["not test_operator_equals_the_cpu", *FAMILIES])

SUITES = (
    ("device", False, (DEVICE, "-k", OPERATORS)),
    ("device, lazy mode", True, (DEVICE, "-k", OPERATORS)),
    ("graphs", False, ("tests/simulator/graphs",)),
    ("compiled programs", False, ("tests/simulator/compile",)),
)
"""For each suite: its name, whether it uses lazy mode, and pytest's arguments."""


@dataclass(frozen=True)
class Outcome:
    """Result of a suite; `findings` is the output of the sanitizers from all processes."""

    suite: str
    passed: int
    skipped: int
    failed: int
    findings: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether tests ran, all of them passed, and there are no findings."""
        return bool(self.passed) and not self.failed and not self.findings


def environment(lazy: bool, findings: Path) -> dict[str, str]:
    """Return the environment variables for processes that load the engine with sanitizers."""
    settings = {
        **os.environ,
        "HPU_MAGIC_SANITIZE": SANITIZERS,
        # The sanitizer runtime must be loaded before the interpreter. At startup, the runtime looks
        # up the function that throws exceptions, which is in libstdc++.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        # Python and PyTorch do not free all memory at exit. Tests capture the output of processes,
        # so findings are written to files.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:handle_abort=1:"
        f"log_path={findings / 'address'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={findings / 'undefined'}",
        "OMP_NUM_THREADS": "1",
    }
    settings.pop("HPU_MAGIC_TEST_LAZY", None)
    return {**settings, "HPU_MAGIC_TEST_LAZY": "1"} if lazy else settings


def library(name: str) -> Path:
    """Return the path of a library that belongs to the compiler."""
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, f"-print-file-name={name}"]
    found = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        sys.exit(f"{compiler} has no {name}: install the sanitizer libraries of your compiler.")
    return found.resolve()


def build() -> None:
    """Build the engine, and check that it contains sanitizers."""
    code = "from hpu_magic.simulator.engine import compiled; print(compiled())"
    with TemporaryDirectory() as findings:
        command = [sys.executable, "-c", code]
        settings = environment(False, Path(findings))
        built = subprocess.run(command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit("The engine could not be built with sanitizers.")
    engine = Path(built.stdout.strip()).read_bytes()
    for check in (b"__asan_report_store8", b"__ubsan_handle_type_mismatch_v1_abort"):
        if check not in engine:
            sys.exit(f"{built.stdout.strip()} has no {check.decode()}: the build has no sanitizer.")


def run(suite: str, lazy: bool, arguments: Sequence[str]) -> Outcome:
    """Run one suite; a crashed worker counts as a failed test."""
    began = time.monotonic()
    with TemporaryDirectory() as place:
        results, findings = Path(place) / "results.xml", Path(place) / "findings"
        findings.mkdir()
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}", *PYTEST]
        command += ["-n", WORKERS, *arguments]
        ended = subprocess.run(command, cwd=ROOT, env=environment(lazy, findings), check=False)
        seconds = time.monotonic() - began
        found = tuple(each.read_text(errors="replace") for each in sorted(findings.iterdir()))
        passed, skipped, failed = counts(results) if results.exists() else (0, 0, 0)
    if ended.returncode and not failed:  # pytest itself failed
        failed = 1
    for finding in found:
        print(finding)
    return Outcome(suite, passed, skipped, failed, found, seconds)


def counts(results: Path) -> tuple[int, int, int]:
    """Return the numbers of passed, skipped and failed tests."""
    suite = next(ElementTree.parse(results).iter("testsuite")).attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    return int(suite["tests"]) - failed - skipped, skipped, failed


def report(outcomes: list[Outcome]) -> str:
    """Return the text of docs/checks.md."""
    import torch

    compiler = os.environ.get("CXX", "c++")
    done = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    version = done.stdout.partition("\n")[0]
    rows = "\n".join(
        f"| {each.suite} | {each.passed} | {each.skipped} | {each.failed} | {len(each.findings)} |"
        f" {each.seconds / 60:.0f} min | {'clean' if each.clean else 'not clean'} |"
        for each in outcomes
    )
    return f"""# Checks of the engine

`make sanitize` writes this page. It runs the test suites of the simulated device with an engine
that is built with AddressSanitizer and UndefinedBehaviorSanitizer (`-fsanitize={SANITIZERS}`,
without `vptr`, which requires type information that PyTorch's libraries do not export), with the
assertions of the standard library, and with a check of the lock order. Each of these checks
terminates a process at its first finding, including processes that tests start. PyTorch's libraries
are built without sanitizers, but their calls to the C library are checked.

torch {torch.__version__}, Python {platform.python_version()}, {version}, {WORKERS} workers.

| suite | passed | skipped | failed | findings | time | |
|---|---|---|---|---|---|---|
{rows}

No findings are suppressed. Only part of PyTorch's operator database is tested, because testing all
operators would take hours: the operators with
{", ".join(FAMILIES)} in their names run on the
device, and every twentieth operator is compiled. Leaks are not checked, because Python and PyTorch
do not free all memory at exit.
"""


def main() -> None:
    """Build, run all suites and write the page; the exit status is 0 if all suites are clean."""
    build()
    outcomes = [run(*suite) for suite in SUITES]
    REPORT.write_text(report(outcomes))
    print(REPORT.read_text())
    sys.exit(not all(each.clean for each in outcomes))


if __name__ == "__main__":
    main()
