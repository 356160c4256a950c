"""`jupyter console` shows each output once, as text."""

import re

import pytest
import walk
from console import Console

SLOW = "%%hpu_fit\ntrainer(2, Slow()).fit(Model(), data)"
ENDLESS = "%%hpu_fit -o interrupted\ntrainer(10_000, Slow()).fit(Model(), data)"


@pytest.fixture(scope="module")
def console():
    console = Console(walk.ENVIRONMENT)
    yield console
    console.close()


@pytest.fixture(scope="module")
def shown(console):
    """The output of each cell in `walk`."""
    return {cell: console.run(cell) for cell in ["epochs = 2", *walk.CELLS]}


def test_fit_ends_with_its_table(shown):
    assert "Fit finished on HPU 5 (simulated GAUDI2)" in shown[walk.FIT]
    assert shown[walk.RESULT].endswith(": ('finished', 8)")


def test_failed_fit_ends_with_its_table_and_the_users_frames(shown):
    failing = shown[walk.FAILING]
    table, _, traceback = failing.partition("-" * 75)
    assert "Fit failed on HPU 5 (simulated GAUDI2) in epoch 2 of 2, batch 2 of 4" in table
    assert re.findall(r"skipping hidden|^Cell In|^File", traceback, re.MULTILINE) == [
        "Cell In",
        "skipping hidden",
        "Cell In",
    ]
    assert "ValueError: the data is broken" in traceback
    assert "%tb Plain" in traceback
    assert shown[walk.FAILED].endswith(": ('failed', 5)")


def test_memory_panel_is_a_table_of_current_values(shown):
    assert "Memory of hpu (simulated GAUDI2)" in shown[walk.PANEL]


def test_commands_and_graphs_are_shown_as_text(shown):
    assert "SIMULATED on the CPU" in shown[walk.DEVICE]
    assert shown[walk.GRAPH].startswith("Graph step captured on HPU 5 (simulated GAUDI2)")
    assert "Graph step replayed 10 times" in shown[walk.REPLAY]


@pytest.mark.parametrize("words", walk.NO_WORDS)
def test_no_output_is_only_the_name_of_a_class(shown, words):
    assert [cell for cell, text in shown.items() if words in text] == []


def test_no_out_prompt_is_empty(shown):
    for cell, text in shown.items():
        assert not re.search(r"Out\[\d+\]:\s*\Z", text), cell
    with_value = [cell for cell, text in shown.items() if "Out[" in text]
    assert with_value == [walk.DEVICE, walk.PANEL, walk.RESULT, walk.REPLAY, walk.FAILED]


def test_running_fit_shows_one_progress_line(console, shown):
    console.enter(SLOW)
    console.wait_for(r"\rTraining Model: epoch 2 of 2, batch \d of 4, .* steps/s, about \d s left")
    output = console.shown(SLOW)
    assert output.count("Training Model") <= 1
    assert "Fit finished on HPU 5 (simulated GAUDI2)" in output


def test_interrupted_fit_shows_its_table_and_keeps_its_result(console, shown):
    console.enter(ENDLESS)
    console.wait_for("Training Model: epoch")
    console.interrupt()
    output = console.shown(ENDLESS)
    assert "Fit interrupted on HPU 5 (simulated GAUDI2) in epoch" in output
    assert "KeyboardInterrupt" in output
    assert console.run("interrupted.outcome").endswith(": 'interrupted'")
