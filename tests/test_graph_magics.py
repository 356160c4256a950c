"""%%hpu_graph, %hpu_replay, %hpu_graphs and %hpu_wrap."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from hpu_magic.runtime import restart


@pytest.fixture
def forgetful(shell):
    """Forget afterwards what the test had remembered."""
    yield
    restart.remember(dict.fromkeys(restart.recall()))


def test_eager_mode_is_told_that_graphs_need_lazy_mode_and_offered_the_restart(run, shell, torch):
    shell.user_ns["x"] = torch.ones(3, device="hpu")
    for source in ("%%hpu_graph step --inputs x\ny = x + 1", "%hpu_wrap model"):
        shell.user_ns["model"] = torch.nn.Linear(2, 2).to("hpu")
        cell = run(source)
        assert isinstance(cell.error, UsageError)
        assert "HPU Graphs need lazy mode, and eager is loaded" in cell.err
        assert "%hpu_mode lazy --restart" in cell.err
        assert "y" not in shell.user_ns
    assert restart.recall() == {}


def test_restart_option_remembers_lazy_mode(run, torch, forgetful):
    cell = run("%%hpu_graph step --restart\ny = 1")
    assert "restart the kernel by hand" in cell.err
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "1"}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("%%hpu_graph 1st\npass", "'1st' cannot be a variable"),
        ("%hpu_replay missing", "There is no graph 'missing'"),
        ("%hpu_graphs --drop missing", "There is no graph 'missing'"),
        ("%hpu_wrap number", "A int cannot be wrapped"),
        ("%hpu_wrap model", "move it with %hpu_to first"),
        ("%hpu_wrap model --train --infer", "leave out one of them"),
        ("%hpu_wrap model --max-graphs 0", "--max-graphs is 0"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(run, shell, torch, source, sentence):
    shell.user_ns.update(number=3, model=torch.nn.Linear(1, 1))
    if "--max-graphs" in source:
        shell.user_ns["model"].to("hpu")
    cell = run(source)
    assert isinstance(cell.error, UsageError)
    assert sentence in cell.err
    assert cell.err.count("\n") == 1


def test_without_captures_the_list_says_how_to_make_one(run):
    assert "%%hpu_graph NAME captures a cell" in run("%hpu_graphs").out
