"""Run the suites of the simulated device on an engine built with sanitizers.

``make sanitize`` builds it with AddressSanitizer and UndefinedBehaviorSanitizer, which end a
process at the first wrong access or undefined operation, and with checks of the order of locks and
of the standard library's containers. What ran and what came of it is written to docs/checks.md.
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
# A thread that waits for ever in the engine hears no signal: the whole worker ends. What takes
# its place would wait for ever too, for the tests of its group.
PYTEST = ("--timeout=900", "--timeout-method=thread", "--max-worker-restart=0")

DEVICE = "tests/simulator/device"
# Of PyTorch's operator database some families: all of it takes hours with sanitizers.
FAMILIES = ("conv", "norm", "index", "view", "resize", "cat")
OPERATORS = " or ".join(["not test_operator_equals_the_cpu", *FAMILIES])

SUITES = (
    ("device", False, (DEVICE, "-k", OPERATORS)),
    ("device, lazy mode", True, (DEVICE, "-k", OPERATORS)),
    ("graphs", False, ("tests/simulator/graphs",)),
    ("compiled programs", False, ("tests/simulator/compile",)),
)
"""Name, lazy mode, what pytest gets."""


@dataclass(frozen=True)
class Outcome:
    """What a suite came to; `findings` are what sanitizers wrote, of whatever process."""

    suite: str
    passed: int
    skipped: int
    failed: int
    findings: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether something ran, all of it passed, and no sanitizer had anything to say."""
        return bool(self.passed) and not self.failed and not self.findings


def environment(lazy: bool, findings: Path) -> dict[str, str]:
    """Environment of a process that loads the sanitized engine, and of those that it starts."""
    settings = {
        **os.environ,
        "HPU_MAGIC_SANITIZE": SANITIZERS,
        # Their functions must come before those that an interpreter without them finds; the one
        # that throws exceptions, which they look for at the start, too.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        # Python and PyTorch leave what they hold to the end of the process. Tests catch what
        # processes write, so findings go to files.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:handle_abort=1:"
        f"log_path={findings / 'address'}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={findings / 'undefined'}",
        "OMP_NUM_THREADS": "1",
    }
    settings.pop("HPU_MAGIC_TEST_LAZY", None)
    return {**settings, "HPU_MAGIC_TEST_LAZY": "1"} if lazy else settings


def library(name: str) -> Path:
    """Return the compiler's own library of that name."""
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, f"-print-file-name={name}"]
    found = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        sys.exit(f"{compiler} has no {name}: install the sanitizers' libraries of your compiler.")
    return found.resolve()


def build() -> None:
    """Build the engine, and make sure that it is one with sanitizers."""
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
            sys.exit(f"{built.stdout.strip()} has no {check.decode()}: it was built without.")


def run(suite: str, lazy: bool, arguments: Sequence[str]) -> Outcome:
    """Run one suite; what its workers die of counts as a failed test."""
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
    if ended.returncode and not failed:  # pytest itself came to no end
        failed = 1
    for finding in found:
        print(finding)
    return Outcome(suite, passed, skipped, failed, found, seconds)


def counts(results: Path) -> tuple[int, int, int]:
    """Return how many tests passed, were skipped and failed."""
    suite = next(ElementTree.parse(results).iter("testsuite")).attrib
    failed = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    return int(suite["tests"]) - failed - skipped, skipped, failed


def report(outcomes: list[Outcome]) -> str:
    """Return the text of docs/checks.md."""
    import torch

    compiler = os.environ.get("CXX", "c++")
    asked = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True)
    version = asked.stdout.partition("\n")[0]
    rows = "\n".join(
        f"| {each.suite} | {each.passed} | {each.skipped} | {each.failed} | {len(each.findings)} |"
        f" {each.seconds / 60:.0f} min | {'clean' if each.clean else 'not clean'} |"
        for each in outcomes
    )
    return f"""# Checks of the engine

Written by `make sanitize`: the suites of the simulated device on an engine that is built with
AddressSanitizer and UndefinedBehaviorSanitizer (`-fsanitize={SANITIZERS}`, without `vptr`, which
asks for type information that PyTorch's libraries keep to themselves), with the assertions of the
standard library, and with a check of the order in which its locks are taken. Each of them ends the
process at its first finding, and so do they in the processes that tests start. PyTorch's own
libraries are not built so; what they read and write through the C library is checked.

torch {torch.__version__}, Python {platform.python_version()}, {version}, {WORKERS} workers.

| suite | passed | skipped | failed | findings | took | |
|---|---|---|---|---|---|---|
{rows}

Nothing is suppressed, and no test is left out but those of PyTorch's operator database, all of
which would take hours: the operators with
{", ".join(FAMILIES)} in their names run
on the device, and every twentieth operator compiled. Leaks are not looked for, since Python and
PyTorch leave what they hold to the end of the process.
"""


def main() -> None:
    """Build, run every suite, write the table; the exit status says whether all is clean."""
    build()
    outcomes = [run(*suite) for suite in SUITES]
    REPORT.write_text(report(outcomes))
    print(REPORT.read_text())
    sys.exit(not all(each.clean for each in outcomes))


if __name__ == "__main__":
    main()
