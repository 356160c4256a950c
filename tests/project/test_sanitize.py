"""Test results and report of `make sanitize`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import sanitize

SUITE = """
import ctypes, subprocess, sys

OVERRUN = '''
import ctypes
allocate = ctypes.CDLL(None).malloc
allocate.restype = ctypes.c_void_p
ctypes.memset(allocate(8), 0, 64)
'''

def test_passes():
    pass

def test_fails():
    assert sys.executable is None

def test_ignores_the_exit_status_of_a_process():
    subprocess.run([sys.executable, "-c", OVERRUN], stderr=subprocess.DEVNULL)

def test_ends_the_worker():
    exec(OVERRUN)
"""
CLEAN = (1, 0, 0, (), 60.0)


def test_failures_and_crashes_are_counted(tmp_path, monkeypatch, capsys):
    try:
        sanitize.library("libasan.so")
    except (OSError, SystemExit) as missing:
        pytest.skip(f"no sanitizers installed ({missing})")
    monkeypatch.setattr(sanitize, "WORKERS", "1")
    file = tmp_path / "test_suite.py"
    file.write_text(SUITE)
    outcome = sanitize.run("some", False, [str(file)])
    assert (outcome.suite, outcome.passed, outcome.skipped, outcome.failed) == ("some", 2, 0, 2)
    overruns = ["heap-buffer-overflow" in finding for finding in outcome.findings]
    assert overruns == [True, True]
    printed = capsys.readouterr().out
    assert all(finding in printed for finding in outcome.findings)
    assert not outcome.clean


@pytest.mark.parametrize(
    ("passed", "failed", "findings", "clean"),
    [
        (3, 0, (), True),
        (3, 1, (), False),
        (3, 0, ("heap-use-after-free",), False),
        (0, 0, (), False),
    ],
)
def test_sanitize_fails_unless_all_suites_are_clean(
    passed, failed, findings, clean, tmp_path, monkeypatch
):
    def run(suite, lazy, arguments):
        first = suite == sanitize.SUITES[0][0]
        return sanitize.Outcome(suite, *((passed, 2, failed, findings, 60.0) if first else CLEAN))

    monkeypatch.setattr(sanitize, "build", lambda: None)
    monkeypatch.setattr(sanitize, "run", run)
    monkeypatch.setattr(sanitize, "REPORT", tmp_path / "checks.md")
    with pytest.raises(SystemExit) as ended:
        sanitize.main()
    assert bool(ended.value.code) != clean
    rows = [line for line in sanitize.REPORT.read_text().splitlines() if "min |" in line]
    assert rows[0] == (
        f"| device | {passed} | 2 | {failed} | {len(findings)} | 1 min |"
        f" {'clean' if clean else 'not clean'} |"
    )
    assert [row.endswith("| clean |") for row in rows[1:]] == [True] * (len(sanitize.SUITES) - 1)
