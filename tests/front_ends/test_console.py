"""`jupyter console` shows text alone, and no output a second time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import walk
from console import Console

SLOW = "%%hpu_fit\ntrainer(2, Slow()).fit(Model(), data)"
ENDLESS = "%%hpu_fit -o interrupted\ntrainer(10_000, Slow()).fit(Model(), data)"


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    console = Console(walk.ENVIRONMENT)
    yield console
    console.close()


@pytest.fixture(scope="module")
def shown(console: Console) -> dict[str, str]:
    """What each cell of the walk shows."""
    return {cell: console.run(cell) for cell in ["epochs = 2", *walk.CELLS]}


def test_a_fit_leaves_its_table_and_nothing_else(shown: dict[str, str]) -> None:
    table = shown[walk.FIT][shown[walk.FIT].index("Fit finished on HPU 5 (simulated GAUDI2)") :]
    rows = [line.split()[0] for line in table.splitlines()[1:]]
    if "waiting" in rows:  # steps as short as these may well wait for their batches
        rows.remove("waiting")
    assert rows == ["steps", "pace", "peak", "loss"]
    assert shown[walk.RESULT].endswith(": ('finished', 8)")


def test_a_fit_that_fails_ends_with_its_table_and_the_users_frames(shown: dict[str, str]) -> None:
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


def test_a_panel_is_the_table_of_this_moment(shown: dict[str, str]) -> None:
    assert "Memory of hpu (simulated GAUDI2)" in shown[walk.PANEL]


def test_commands_and_graphs_are_shown_as_text(shown: dict[str, str]) -> None:
    assert "SIMULATED on the CPU" in shown[walk.DEVICE]
    assert shown[walk.GRAPH].startswith("Graph step captured on HPU 5 (simulated GAUDI2)")
    assert "Graph step replayed 10 times" in shown[walk.REPLAY]


@pytest.mark.parametrize("words", walk.NO_WORDS)
def test_nothing_is_shown_by_its_class_alone(shown: dict[str, str], words: str) -> None:
    assert [cell for cell, text in shown.items() if words in text] == []


def test_no_out_is_empty(shown: dict[str, str]) -> None:
    for cell, text in shown.items():
        assert not re.search(r"Out\[\d+\]:\s*\Z", text), cell
    with_value = [cell for cell, text in shown.items() if "Out[" in text]
    assert with_value == [walk.DEVICE, walk.PANEL, walk.RESULT, walk.REPLAY, walk.FAILED]


def test_a_line_tells_meanwhile_where_the_fit_stands(
    console: Console, shown: dict[str, str]
) -> None:
    console.enter(SLOW)
    console.wait_for(r"\rTraining Model: epoch 2 of 2, batch \d of 4, .* steps/s, about \d s left")
    lines = console.shown(SLOW).splitlines()
    assert len([line for line in lines if line.startswith("Training Model")]) <= 1
    assert lines[-5].startswith("Fit finished on HPU 5 (simulated GAUDI2)")


def test_an_interrupt_leaves_the_table_and_the_result(
    console: Console, shown: dict[str, str]
) -> None:
    console.enter(ENDLESS)
    console.wait_for("Training Model: epoch")
    console.interrupt()
    left = console.shown(ENDLESS)
    assert "Fit interrupted on HPU 5 (simulated GAUDI2) in epoch" in left
    assert "KeyboardInterrupt" in left
    assert console.run("interrupted.outcome").endswith(": 'interrupted'")
