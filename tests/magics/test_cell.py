"""Cells with a cell magic behave like plain cells."""

import pytest
from IPython.core.error import UsageError

CELL_MAGICS = ["hpu_autocast", "hpu_memory", "hpu_time -n 1 -r 1", "hpu_from_cuda"]


@pytest.fixture(params=CELL_MAGICS)
def under(request, run):
    """Run a cell with each of the cell magics."""
    return lambda body: run(f"%%{request.param}\n{body}")


def test_last_expression_is_displayed_and_stored_once(under, shell):
    cell = under("x = 'plum'\nx + 'tree'")
    assert cell.result == "plumtree"
    assert cell.out.count("plumtree") == 1
    assert shell.user_ns["_"] == "plumtree"
    assert shell.user_ns["Out"] == {1: "plumtree"}


def test_trailing_semicolon_displays_nothing(under, shell):
    cell = under("x = 'plum'\nx + 'tree';")
    assert cell.result is None
    assert "plumtree" not in cell.out
    assert shell.user_ns["Out"] == {}


def test_traceback_shows_the_users_line_and_number(under):
    cell = under("x = 1\n\nx / 0  # here\ny = 2")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "line 4" in cell.out
    assert "----> 4 x / 0  # here" in cell.out
    assert "hpu_magic" not in cell.out.replace("# %%hpu_magic", "")


def test_traceback_quotes_the_line_of_the_magic(run):
    cell = run("%%hpu_autocast --dtype bf16\n1 / 0")
    assert "1 # %%hpu_autocast --dtype bf16" in cell.out


def test_syntax_error_points_to_the_users_line(under):
    cell = under("x = 1\ny = (")
    assert isinstance(cell.error, SyntaxError)
    assert "line 3" in cell.out


def test_stray_break_is_a_syntax_error_before_the_cell_runs(under, shell):
    cell = under("x = 1\nbreak")
    assert isinstance(cell.error, SyntaxError)
    assert "x" not in shell.user_ns


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("found = !echo from-the-shell\n%precision 3\nfound", ["from-the-shell"]),
        ("%%time\n6 * 7", 42),
        ("import asyncio\nawait asyncio.sleep(0.001, 'slept')", "slept"),
        ("from __future__ import annotations\ndef f(x: int): ...\nf.__annotations__", {"x": "int"}),
        ("x = 21", None),
        ("# only a comment", None),
    ],
)
def test_magics_await_and_future_imports_work_in_the_cell(under, body, result):
    cell = under(body)
    assert (cell.error, cell.result) == (None, result)
    assert ("Wall time" in cell.out) == ("%%time" in body)


def test_another_cell_magic_above_works(run):
    cell = run("%%time\n%%hpu_autocast\n6 * 7")
    assert cell.error is None
    assert "42" in cell.out


def test_cell_magics_can_be_nested(run, torch):
    cell = run("%%hpu_memory\n%%hpu_autocast\nimport torch\ntorch.is_autocast_enabled('hpu')")
    assert cell.result is True
    assert "Memory of this cell" in cell.out
    assert not torch.is_autocast_enabled("hpu")


def test_magic_below_prun_is_refused(run):
    cell = run("%%prun -q\n%%hpu_autocast\n6 * 7")
    assert isinstance(cell.error, UsageError)
    assert "put %%hpu_autocast on the first line" in cell.err


def test_cell_magic_adds_no_variables(under, shell):
    before = set(shell.user_ns)
    under("6 * 7")
    new = {name for name in set(shell.user_ns) - before if not name.startswith(("_", "Out"))}
    assert new == set()


@pytest.mark.parametrize(
    ("interactivity", "body", "shown"),
    [
        ("all", "111\n222", ["111", "222"]),
        ("none", "111\n222", []),
        ("last_expr_or_assign", "111\nx = 222", ["222"]),
        ("last", "for x in (111, 222):\n    x", ["111", "222"]),
        ("last_expr", "for x in (111, 222):\n    x", []),
    ],
)
def test_display_follows_the_shells_interactivity(run, shell, interactivity, body, shown):
    shell.ast_node_interactivity = interactivity
    cell = run(f"%%hpu_autocast\n{body}")
    assert [number for number in ("111", "222") if number in cell.out] == shown


def test_interrupt_propagates_and_autocast_ends(run, torch):
    cell = run("%%hpu_autocast\nraise KeyboardInterrupt")
    assert isinstance(cell.error, KeyboardInterrupt)
    assert not torch.is_autocast_enabled("hpu")


def test_incomplete_cell_continues_on_the_next_line(shell):
    check = shell.input_transformer_manager.check_complete
    assert check("%%hpu_autocast\n")[0] == "incomplete"
    assert check("%%hpu_autocast\nx = 1\n\n")[0] == "complete"


def test_run_cell_magic_expands_variables_in_the_options(run, torch):
    cell = run(
        "kind = 'fp16'\nget_ipython().run_cell_magic('hpu_autocast', '--dtype {kind}', "
        "'import torch; dtype = torch.get_autocast_dtype(\"hpu\")')\ndtype"
    )
    assert cell.result == torch.float16


def test_unload_ext_removes_all_commands(run, shell):
    shell.run_line_magic("unload_ext", "hpu_magic")
    try:
        assert isinstance(run("%hpu").error, UsageError)
        assert isinstance(run("%%hpu_memory\n1").error, UsageError)
        assert not any("hpu_magic" in str(transformer) for transformer in shell.ast_transformers)
    finally:
        shell.run_line_magic("load_ext", "hpu_magic")
    assert run("%%hpu_memory\n41 + 1").result == 42
