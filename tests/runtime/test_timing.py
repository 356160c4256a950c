"""Test %hpu_time, %%hpu_time and hpu_magic.time."""

import re
import time

import pytest

import hpu_magic
from hpu_magic.runtime.measure.timing import TimeReport


def test_cell_runs_once_and_then_n_times_per_repeat(run, shell):
    run("count = 0")
    run("%%hpu_time -n 3 -r 2 -o report\ncount += 1")
    assert shell.user_ns["count"] == 1 + 3 * 2
    report = shell.user_ns["report"]
    assert len(report.first) == 1
    assert len(report.steady) == 2
    assert report.runs == 3


@pytest.mark.parametrize(("run_number", "repeats"), [(1, 0), (4, 0), (5, 1), (8, 2)])
def test_interrupt_reports_the_completed_repeats(run, run_number, repeats):
    run("count = 0")
    cell = run(
        f"%%hpu_time -n 3 -r 5\ncount += 1\nif count == {run_number}:\n    raise KeyboardInterrupt"
    )
    assert isinstance(cell.error, KeyboardInterrupt)
    shown = re.findall(r"^  (first.*?|steady state|rate)  +(.*)$", cell.out, re.MULTILINE)
    if not repeats:
        assert shown == []
        return
    (first, time_of_first), (_, steady), (_, _) = shown
    assert first == "first run"
    assert re.fullmatch(r"[\d.]+ \w+, including compilation", time_of_first)
    assert steady.endswith(f"({repeats} x 3 runs)")


@pytest.mark.parametrize("interactivity", ["last_expr", "all"])
def test_value_of_the_last_run_is_displayed_once_below_the_times(run, shell, interactivity):
    run("count = 0")
    shell.ast_node_interactivity = interactivity
    cell = run("%%hpu_time -n 2 -r 1\ncount += 1\ncount")
    assert cell.result == 3
    times, _, value = cell.out.partition("Out[")
    assert "steady state" in times
    assert value.endswith(": 3\n")


def test_slow_first_runs_are_excluded_from_the_steady_state(run, shell):
    run("import time\npauses = [0.6, 0.4, 0.03]")
    run("%%hpu_time -r 2 -o report\ntime.sleep(pauses[0] if len(pauses) == 1 else pauses.pop(0))")
    report = shell.user_ns["report"]
    assert len(report.first) == 2
    assert report.first[0] >= 0.6
    assert 0.03 <= report.mean < 0.4


def test_card_time_is_shown_as_an_estimate_with_its_band(run, shell, torch):
    shell.user_ns["x"] = torch.ones(64, 64, device="hpu")
    run("%config HPUMagics.card_time = 'ideal'")
    try:
        cell = run("%%hpu_time -n 5 -r 3 -o report\nx @ x")
    finally:
        run("%config HPUMagics.card_time = 'off'")
    report = shell.user_ns["report"]
    low, high = report.band
    assert low < 1 < high
    assert len(report.card) == 3
    assert report.card[0] == pytest.approx(report.card[1])
    [row] = re.findall(r"card time +(.*)", cell.out)
    assert re.fullmatch(r"[\d.]+ µs per run \(estimate: [\d.]+ µs to [\d.]+ µs\)", row)
    assert "card time" not in run("%%hpu_time -n 5 -r 3\nx @ x").out


def test_time_includes_the_work_on_the_device(run, shell, torch):
    shell.user_ns["x"] = torch.ones(64, 64, device="hpu")
    cell = run("%hpu_time -n 5 -r 3 x @ x")
    assert cell.result.mean > 0
    assert "simulated" in cell.out
    assert "including compilation" in cell.out
    assert "steady state" in cell.out
    assert "runs/s" in cell.out


def test_statement_keeps_its_quotes_and_dashes(run, shell):
    run("""%hpu_time -n 1 -r 1 kept = "a  'b" + 'c' * -(-2)""")
    assert shell.user_ns["kept"] == "a  'bcc"


def test_error_in_the_cell_is_raised_with_its_line(run):
    cell = run("%%hpu_time\nx = 1\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "line 3" in cell.out
    assert "steady" not in cell.out


@pytest.mark.parametrize(
    "source",
    ["%hpu_time 1 / 0", "get_ipython().run_cell_magic('hpu_time', '', '1 / 0')"],
)
def test_traceback_of_a_statement_omits_frames_of_the_magic(run, source):
    cell = run(source)
    assert isinstance(cell.error, ZeroDivisionError)
    assert "1 / 0" in cell.out
    assert "In[0]" not in cell.out
    assert not re.search(r"File \S*hpu_magic/magics", cell.out)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("%hpu_time", "needs a statement: type %hpu_time model(batch)"),
        ("%hpu_time x = (", "is not Python"),
        ("%hpu_time -n -1 pass", "-n is -1"),
        ("%%hpu_time -r 0\npass", "-r is 0"),
        ("%%hpu_time x\npass", "move it into the cell"),
        ("%%hpu_time -n many\npass", "needs a whole number after -n/--runs, not 'many'"),
        ("%hpu_time -o 1x pass", "'1x' cannot be a variable"),
    ],
)
def test_wrong_input_is_rejected_with_one_sentence(rejected, source, sentence):
    assert sentence in rejected(source)


def test_defaults_are_configurable(run, shell):
    run("count = 0\n%config HPUMagics.time_runs = 2\n%config HPUMagics.time_repeats = 1")
    try:
        run("%%hpu_time\ncount += 1")
        assert shell.user_ns["count"] == 1 + 2
    finally:
        run("%config HPUMagics.time_runs = 0\n%config HPUMagics.time_repeats = 5")


def test_cell_magic_called_by_code_times_the_cell(run, shell):
    run("count = 0")
    cell = run("get_ipython().run_cell_magic('hpu_time', '-n 3 -r 2', 'count += 1')")
    assert cell.error is None
    assert cell.result is None  # the magic does not return a value
    assert shell.user_ns["count"] == 1 + 3 * 2
    assert "(2 x 3 runs)" in cell.out


def test_large_numbers_of_runs_have_separators():
    report = TimeReport(first=[0.1], steady=[0.001] * 5, runs=9089)
    assert dict(report.rows())["steady state"].endswith("(5 x 9,089 runs)")


def test_function_times_a_callable(shell):
    report = hpu_magic.time(time.sleep, 0.002, runs=2, repeats=2)
    assert 0.002 <= report.best <= report.mean
    with pytest.raises(ValueError, match="is not callable"):
        hpu_magic.time(3)
