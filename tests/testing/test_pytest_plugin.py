"""Test `pytest --hpu` in another project; each session runs in a separate process."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from started_process import completed, wait_for

pytest_plugins = "pytester"

PROJECT = Path(__file__).parents[2]
HOME = str(Path.home())  # the engine is here; pytester sets another home
ALL = pytest.mark.skipif(
    not os.environ.get("HPU_MAGIC_TEST_ALL_EXAMPLES"), reason="make examples runs it"
)


@pytest.fixture
def project(pytester, monkeypatch):
    """An empty project in an environment with hpu_magic's plug-in."""
    declared = (PROJECT / "pyproject.toml").read_text().partition("[project.entry-points.pytest11]")
    installed = pytester.mkdir("installed")
    (installed / "plugin-0.dist-info").mkdir()
    entries = declared[2].partition("\n\n")[0].replace('"', "")
    (installed / "plugin-0.dist-info" / "entry_points.txt").write_text(f"[pytest11]{entries}\n")
    (installed / "plugin-0.dist-info" / "METADATA").write_text("Name: plugin\nVersion: 0\n")
    path = [str(installed), str(PROJECT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("HOME", HOME)
    for name in (
        "PYTEST_XDIST_WORKER",
        "PT_HPU_LAZY_MODE",
        "HPU_MAGIC_SIMULATOR",
        "PYTEST_ADDOPTS",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(pytester.path / "cards"))
    return pytester


@pytest.fixture
def run(project):
    """Run a session with `--hpu` on test files; return its outcomes and output."""

    def run(*options, **files):
        project.makepyfile(**files)
        result = project.runpytest_subprocess("--hpu", "-rA", *options)
        return outcomes(result), result.stdout.str()

    return run


def outcomes(result):
    """Return the outcome of each test, from the summary of `-rA`."""
    summary = result.stdout.str().partition("short test summary info")[2]
    found = re.findall(r"^([A-Z]+) (?:\[1\] )?\S+\.py::(\S+)", summary, re.MULTILINE)
    return {name: outcome for outcome, name in found}


SESSION = """
import os, pytest, torch
from habana_frameworks.torch.utils.internal import is_lazy

KEPT = []

def test_unmarked(hpu, hpu_mode):
    assert hpu == torch.device("hpu")
    assert (torch.ones(3, device=hpu) + 1).tolist() == [2, 2, 2]
    assert not is_lazy() and hpu_mode == "eager"

@pytest.mark.lazy
def test_lazy(hpu, hpu_mode):
    assert is_lazy() and hpu_mode == "lazy"

@pytest.mark.lazy
@pytest.mark.eager
def test_both(hpu, hpu_mode):
    assert is_lazy() == (hpu_mode == "lazy")

@pytest.mark.lazy
class TestMarkedAsAWhole:
    def test_lazy(self):
        assert is_lazy()

    @pytest.mark.eager
    def test_eager(self):
        assert not is_lazy()

@pytest.mark.lazy
def test_lazy_fails(hpu):
    number = 3
    print("printed in lazy mode")
    assert number == 4

@pytest.fixture
def broken():
    raise ValueError("no such thing")

@pytest.mark.lazy
def test_lazy_fixture_fails(hpu, broken):
    pass

@pytest.mark.lazy
def test_lazy_skips():
    pytest.skip("not now")

@pytest.mark.lazy
def test_lazy_leaves(hpu):
    KEPT.append(torch.ones(1024, 256, device=hpu))

def test_leaves(hpu):
    KEPT.append(torch.ones(1024, 512, device=hpu))
    KEPT.append(torch.ones(3, device=hpu))

def test_fails_with_tensors(hpu):
    much = torch.ones(1024, 1024, device=hpu)
    before = torch.hpu.memory_allocated()
    os.environ["BEFORE"] = str(before)
    raise ValueError("with much")

def test_memory_of_a_failure_is_free(hpu):
    assert torch.hpu.memory_allocated() <= int(os.environ["BEFORE"]) - 4 * 1024 * 1024

@pytest.mark.hpu_no_fallback
def test_falls_back(hpu):
    for _ in range(2):
        torch.linalg.qr(torch.ones(3, 3, device=hpu))

@pytest.mark.hpu_no_fallback(allow=["aten::linalg_qr.out"])
def test_may_fall_back(hpu):
    torch.linalg.qr(torch.ones(3, 3, device=hpu))

def steps(sizes, hpu):
    import habana_frameworks.torch.core as htcore
    for size in sizes:
        torch.ones(size).to(hpu).add(1)
        htcore.mark_step()

@pytest.mark.lazy
@pytest.mark.hpu_max_recompilations(1)
def test_compiles_again(hpu):
    steps([2, 2, 3, 4], hpu)

@pytest.mark.lazy
@pytest.mark.hpu_max_recompilations(1)
def test_compiles_once_more(hpu):
    steps([5, 5, 6, 6, 5], hpu)
"""

EXPECTED = {
    "test_unmarked": "PASSED",
    "test_lazy": "PASSED",
    "test_both[eager]": "PASSED",
    "test_both[lazy]": "PASSED",
    "TestMarkedAsAWhole::test_lazy": "PASSED",
    "TestMarkedAsAWhole::test_eager": "PASSED",
    "test_lazy_fails": "FAILED",
    "test_lazy_fixture_fails": "ERROR",
    "test_lazy_leaves": "PASSED",
    "test_leaves": "PASSED",
    "test_fails_with_tensors": "FAILED",
    "test_memory_of_a_failure_is_free": "PASSED",
    "test_falls_back": "FAILED",
    "test_may_fall_back": "PASSED",
    "test_compiles_again": "FAILED",
    "test_compiles_once_more": "PASSED",
}


def line_of(source, text):
    return source.strip().splitlines().index(text) + 1


def test_session_runs_both_modes_and_reports_costs(project, run):
    options = ("-o", "junit_family=xunit2", "--junitxml=it.xml")
    results, output = run(*options, test_it=SESSION)
    assert results == EXPECTED
    assert re.search(r"4 failed, 11 passed, 1 skipped, 2 warnings, 1 error in", output)
    assert "hpu: simulated GAUDI2, eager\n" in output
    # Reports of the other process are complete.
    assert ">       assert number == 4\nE       assert 3 == 4" in output
    assert "printed in lazy mode" in output
    left = [line for line in output.splitlines() if "DeviceMemoryWarning" in line]
    place = f"{project.path}/test_it.py:"
    because = (
        "remove references to them outside of the test, for example in global variables or caches."
    )
    assert [line.strip().removeprefix(place) for line in left] == [
        f"{line_of(SESSION, 'def test_lazy_leaves(hpu):') - 1}: DeviceMemoryWarning: "
        f"test_it.py::test_lazy_leaves left 1 tensor on the device, 1.00 MiB "
        f"(1024 x 256, float32): {because}",
        f"{line_of(SESSION, 'def test_leaves(hpu):')}: DeviceMemoryWarning: "
        f"test_it.py::test_leaves left 2 tensors on the device, 2.00 MiB "
        f"(1024 x 512, float32, 3, float32): {because}",
    ]
    line = line_of(SESSION, "        torch.linalg.qr(torch.ones(3, 3, device=hpu))")
    assert (
        "1 operator ran on the CPU because the device has no kernel: aten::linalg_qr.out in "
        f"test_it.py, line {line} (2 times).\n" in output
    )
    line = line_of(SESSION, "        htcore.mark_step()")
    assert (
        f"Graphs were recompiled 2 times (limit 1): test_it.py, line {line} compiled 3 "
        "graphs with inputs of ([2]) and ([3]) and ([4]).\n" in output
    )
    # Only the first process writes the file.
    assert (project.path / "it.xml").read_text().count("<testcase") == len(EXPECTED) + 1


FAILURES = """
import unittest
import pytest, torch

KEPT = []

def much():
    return torch.ones(1024, 1024, device="hpu")

def inner():
    tensor = much()
    raise KeyError("inner")

def test_plain():  # without the fixture
    tensor = much()
    assert False

def test_called(hpu):
    tensor = much()
    pytest.fail("by a call")

def test_hidden_cause(hpu):
    try:
        inner()
    except KeyError:
        raise RuntimeError("outer") from None

@pytest.fixture
def broken(hpu):
    tensor = much()
    raise ValueError("while it is set up")

def test_fixture(broken):
    pass

@pytest.fixture
def broken_at_the_end(hpu):
    tensor = much()
    yield
    raise ValueError("while it is torn down")

def test_fixture_teardown(broken_at_the_end):
    pass

@pytest.fixture(scope="module")
def broken_for_all():
    tensor = much()
    raise ValueError("for the whole module")

def test_module_fixture(broken_for_all):
    pass

@pytest.mark.xfail
def test_expected(hpu):
    tensor = much()
    assert False

def test_skips(hpu):
    tensor = much()
    pytest.skip("half way")

class Case(unittest.TestCase):
    def test_case(self):
        tensor = much()
        self.fail()

def test_of_a_group(hpu):
    class Group(Exception):
        exceptions = ()

    group = Group()
    try:
        inner()
    except KeyError as error:
        group.exceptions = (error,)
    group.__context__ = None
    raise group

def test_leaves_little(hpu):
    assert torch.hpu.memory_allocated() == 0
    KEPT.append(torch.ones(100, device=hpu))
"""


def test_tensors_of_failed_tests_are_freed(run):
    _, output = run(test_it=FAILURES)
    assert re.search(r"5 failed, 2 passed, 1 skipped, 1 xfailed, 1 warning, 3 errors in", output)
    (left,) = [line for line in output.splitlines() if "DeviceMemoryWarning" in line]
    assert "test_it.py::test_leaves_little left 1 tensor on the device, 400 B" in left


CARDS = """
import atexit, os, signal, time, pathlib, pytest, torch
import torch.distributed as dist

def total(size, *, of):
    shares = torch.full((size,), float(of[dist.get_rank()]), device="hpu")
    dist.all_reduce(shares)
    return {"sum": shares, "rank": dist.get_rank(), "card": torch.hpu.current_device()}

def test_result_of_each_rank(hpu_cards):
    ranks = hpu_cards(2, backend="hccl")
    first, second = ranks(total, 3, of=[1, 2])
    assert [first["rank"], second["rank"]] == [0, 1]
    assert first["sum"].tolist() == second["sum"].tolist() == [3, 3, 3]
    assert first["sum"].device.type == "cpu"
    number = 5
    # The processes and their group still exist.
    assert ranks(lambda: number + dist.get_rank()) == [5, 6]
    end = pathlib.Path("ended").absolute()

    def ends_slowly():
        time.sleep(0.3)
        end.with_suffix(f".{os.environ['RANK']}").touch()

    ranks(lambda: atexit.register(ends_slowly) and None)

    def fails():
        if dist.get_rank() == 1:
            raise KeyError("on one of them")
        dist.barrier()

    with pytest.raises(KeyError, match="on one of them") as raised:
        ranks(fails)
    assert "rank 1 of 2" in str(raised.value.__cause__)
    assert 'raise KeyError("on one of them")' in str(raised.value.__cause__)
    # Rank 0 waits in the barrier and is killed; rank 1 ends normally.
    assert end.with_suffix(".1").exists()

def test_more_cards_than_there_are(hpu_cards):
    hpu_cards(9)

def test_no_number_of_cards(hpu_cards):
    hpu_cards(0)

def test_a_card_that_somebody_holds(hpu, hpu_cards):
    torch.ones(1, device=hpu)
    hpu_cards(8)(total)
"""


def test_hpu_cards_runs_functions_on_several_cards(run):
    results, output = run(test_it=CARDS)
    assert results == {
        "test_result_of_each_rank": "PASSED",
        "test_no_number_of_cards": "FAILED",
        "test_a_card_that_somebody_holds": "FAILED",
    }
    assert "needs 9 cards, but this machine has 8" in output
    assert "HPUError: hpu_cards needs at least 1 card, got hpu_cards(0)." in output
    assert (
        "RankError: hpu_cards(8) needs 8 free cards, but only 7 of 8 are free (held: HPU 0 by this "
        "process (" in output
    )


@ALL
def test_coverage_includes_both_modes_and_ranks(project):
    project.makepyfile(
        code_of_it="""
        def doubled(x):
            return x * 2

        def in_lazy_mode(x):
            return x + 1

        def on_a_rank(x):
            return x + 2

        def never(x):
            return x + 3
        """,
        test_it="""
        import code_of_it as code, pytest, torch

        def test_here(hpu):
            assert code.doubled(torch.ones(1, device=hpu)).item() == 2

        @pytest.mark.lazy
        def test_there(hpu):
            assert code.in_lazy_mode(torch.ones(1, device=hpu)).item() == 2

        def test_ranks(hpu_cards):
            assert hpu_cards(2)(code.on_a_rank, 1) == [3, 3]
        """,
    )
    page = (PROJECT / "docs" / "testing.md").read_text()
    settings = page.partition("```toml\n[tool.coverage")[2].partition("```")[0]
    (project.path / "pyproject.toml").write_text(f"[tool.coverage{settings}")
    result = project.runpytest_subprocess("--hpu", "--cov=code_of_it", "--cov-report=term-missing")
    result.assert_outcomes(passed=3)
    assert re.search(r"^code_of_it\.py +8 +1 +88% +11$", result.stdout.str(), re.MULTILINE)
    assert list(project.path.glob(".coverage*")) == [project.path / ".coverage"]


def test_without_the_option_the_plugin_imports_nothing_and_skips_device_tests(project):
    project.makepyfile(
        """
        import sys, pytest

        @pytest.mark.lazy
        def test_of_another_project_that_has_a_marker_of_this_name():
            loaded = {name for name in sys.modules if name.startswith("hpu_magic.")}
            loaded.discard("hpu_magic.errors")
            assert loaded == {"hpu_magic.testing", "hpu_magic.testing.plugin"}
            assert "torch" not in sys.modules

        def test_device(hpu): ...

        def test_cards(hpu_cards): ...

        def test_mode(hpu_mode): ...
        """
    )
    result = project.runpytest_subprocess("-rA", "--strict-markers", "--hpu-no-fallback")
    result.assert_outcomes(passed=1, skipped=3)
    assert result.stdout.str().count("needs the hpu device: run pytest --hpu") == 3
    assert "hpu:" not in result.stdout.str().partition("collected")[0]


def test_missing_torch_is_a_usage_error(project):
    (project.path / "installed" / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return None\n"
        "import importlib.util as util, importlib.machinery as machinery\n"
        "found = machinery.PathFinder.find_spec\n"
        "machinery.PathFinder.find_spec = classmethod(\n"
        "    lambda cls, name, *rest: None if name == 'torch' else found(name, *rest))\n"
    )
    result = project.runpytest_subprocess("--hpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (
        "ERROR: --hpu requires PyTorch, which is not installed: pip install torch.\n"
        in result.stderr.str()
    )


@pytest.mark.parametrize(
    ("variable", "option", "mode"),
    [("1", (), "lazy"), ("1", ("--hpu-mode", "eager"), "eager")],
)
def test_mode_comes_from_the_option_or_the_environment(
    project, monkeypatch, variable, option, mode
):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", variable)
    project.makepyfile(
        "import os\n"
        f"def test_it(): assert os.environ['PT_HPU_LAZY_MODE'] == '{int(mode == 'lazy')}'"
    )
    result = project.runpytest_subprocess("--hpu", *option)
    result.assert_outcomes(passed=1)
    assert f"hpu: simulated GAUDI2, {mode}\n" in result.stdout.str()


def test_invalid_machine_settings_are_a_usage_error(project, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARD", "gaudi7")
    result = project.runpytest_subprocess("--hpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.fullmatch(r"ERROR: --hpu: .*'gaudi7'.*\n+", result.stderr.str())


def test_plugin_uses_an_installed_vendor_package(project):
    bridge = project.path / "vendor" / "habana_frameworks" / "torch"
    bridge.mkdir(parents=True)
    (bridge / "__init__.py").write_text("")
    project.makepyfile(
        """
        import os, sys

        def test_it():
            assert "HPU_MAGIC_SIMULATOR" not in os.environ
            assert not any("hpu_magic" in type(one).__module__ for one in sys.meta_path)
        """
    )
    path = f"{project.path / 'vendor'}:{os.environ['PYTHONPATH']}"
    environment = {**os.environ, "PYTHONPATH": path}
    command = sys.executable, "-m", "pytest", "--hpu"
    done = completed(*command, cwd=project.path, env=environment)
    assert "1 passed" in done.stdout
    assert "hpu: habana-torch-plugin of unknown version, eager\n" in done.stdout


@ALL
def test_xdist_workers_use_separate_cards_and_both_modes(run):
    results, _ = run("-n", "2", test_it=SESSION, test_cards=CARDS)
    expected = dict(EXPECTED)
    del expected["test_memory_of_a_failure_is_free"]  # another worker may run this test
    assert {name: results[name] for name in expected} == expected
    assert results["test_result_of_each_rank"] == "PASSED"


INTERRUPTED = """
import time, pytest
from pathlib import Path

@pytest.fixture
def resource():
    yield
    Path("torn down").write_text("")

@pytest.mark.lazy
def test_long(hpu, resource):
    Path("began").write_text("")
    time.sleep(120)

def test_next():
    Path("continued").write_text("")
"""


@pytest.fixture
def interrupted(project):
    project.makepyfile(test_it=INTERRUPTED)
    command = [sys.executable, "-m", "pytest", "--hpu"]
    with subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for((project.path / "began").exists)
            process.send_signal(signal.SIGINT)
            output = process.communicate(timeout=60)[0]
        finally:
            process.kill()
    return project.path, output, process.returncode


@ALL
def test_interrupt_tears_down_fixtures_of_the_other_process(interrupted):
    folder, output, status = interrupted
    assert status == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in output
    assert (folder / "torn down").exists()
    assert not (folder / "continued").exists()


@ALL
def test_hanging_or_killed_process_fails_only_its_test(run):
    results, output = run(
        test_it="""
        import os, signal, time, pytest, torch

        @pytest.mark.lazy
        def test_dies():
            os.kill(os.getpid(), signal.SIGKILL)

        @pytest.mark.lazy
        @pytest.mark.timeout(5)
        def test_hangs(hpu):
            time.sleep(60)

        @pytest.mark.lazy
        def test_next(hpu): ...

        def test_of_a_name_that_one_mode_lacks(hpu): ...

        if os.environ["PT_HPU_LAZY_MODE"] == "0":
            test_lacking = pytest.mark.lazy(test_of_a_name_that_one_mode_lacks)

        def sleeps():
            if os.environ["RANK"] == "1":
                time.sleep(60)

        def test_rank_hangs(hpu_cards):
            hpu_cards(2, timeout=1)(sleeps)

        def dies():
            if os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)

        def test_rank_dies(hpu_cards):
            hpu_cards(2)(dies)

        def compares():
            rank = int(os.environ["RANK"])
            assert rank == 7

        def test_assertion_on_a_rank(hpu_cards):
            hpu_cards(1)(compares)
        """
    )
    assert results == {
        "test_dies": "FAILED",
        "test_hangs": "FAILED",
        "test_lacking": "FAILED",
        "test_of_a_name_that_one_mode_lacks": "PASSED",
        "test_next": "PASSED",
        "test_rank_hangs": "FAILED",
        "test_rank_dies": "FAILED",
        "test_assertion_on_a_rank": "FAILED",
    }
    assert "The process that ran this test in lazy mode ended with signal 9 (SIGKILL)." in output
    assert (
        "This test does not exist in lazy mode; run pytest --hpu --hpu-mode lazy to find the cause."
        in output
    )
    assert "Timeout (>5.0s) from pytest-timeout." in output
    assert "RankError: rank 1 of 2 did not return from sleeps within 1 s.\n" in output
    assert re.search(r'File ".*test_it\.py", line \d+ in sleeps', output)
    assert "RankError: rank 1 of 2 ended with signal 9 (SIGKILL) in dies." in output
    assert "E       assert 0 == 7\n" in output


@ALL
def test_no_fallback_option_applies_to_all_tests_and_ranks(run):
    results, output = run(
        "--hpu-no-fallback",
        test_it="""
        import pytest, torch

        def falls(device="hpu"):
            torch.linalg.qr(torch.ones(3, 3, device=device))

        def test_here(hpu):
            falls()

        def test_on_a_rank(hpu_cards):
            hpu_cards(2)(falls)

        @pytest.mark.hpu_no_fallback(allow="aten::linalg_qr.out")
        def test_allowed(hpu):
            falls()

        @pytest.mark.hpu_no_fallback(True)
        def test_wrong_marker(hpu): ...

        @pytest.mark.hpu_max_recompilations(-1)
        def test_wrong_number(hpu): ...
        """,
    )
    assert results == {
        "test_here": "FAILED",
        "test_on_a_rank": "FAILED",
        "test_allowed": "PASSED",
        "test_wrong_marker": "FAILED",
        "test_wrong_number": "FAILED",
    }
    place = "aten::linalg_qr.out in test_it.py, line 4"
    assert f"kernel: {place}.\n" in output
    assert f"kernel: {place}, rank 0; {place}, rank 1.\n" in output
    assert "The marker hpu_no_fallback accepts only operator names in allow, for" in output
    assert (
        "The argument of the marker hpu_max_recompilations is invalid; use an integer of at least"
        in output
    )


@ALL
def test_early_stop_tears_down_fixtures_of_the_other_process(project):
    project.makepyfile(
        test_it="""
        import pytest
        from pathlib import Path

        @pytest.fixture(scope="module")
        def resource():
            yield
            Path("torn down").write_text("")

        pytestmark = pytest.mark.lazy

        def test_fails(resource):
            assert False

        def test_next(resource): ...
        """
    )
    result = project.runpytest_subprocess("--hpu", "-x")
    result.assert_outcomes(failed=1)
    assert (project.path / "torn down").exists()


@ALL
def test_documented_tests_pass(project):
    page = (PROJECT / "docs" / "testing.md").read_text()
    tests = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    project.makepyfile(**{f"test_{number}": text for number, text in enumerate(tests)})
    project.runpytest_subprocess("--hpu").assert_outcomes(passed=5)


def test_invalid_number_of_recompilations_is_a_usage_error(project):
    result = project.runpytest_subprocess("--hpu", "--hpu-max-recompilations", "few")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "N must be an integer of at least 0, got 'few'" in result.stderr.str()
