"""%hpu_ledger and hpu_magic.ledger."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

import hpu_magic
from hpu_magic.runtime import units


@pytest.fixture
def on(run, shell, torch):
    """The ledger switched on, with a tensor x on the device."""
    shell.user_ns["x"] = torch.ones(256, 4, device="hpu")
    run("%hpu_ledger on")
    return run


def test_cell_that_does_not_use_the_device_gets_no_line(on):
    assert on("number = 3").out == ""
    assert on("%hpu_ledger on").out == ""


def test_cell_that_uses_the_device_gets_one_line_with_the_peak(on, torch):
    peak = units.size(torch.hpu.memory_allocated() + 4096)
    cell = on("y = x + 1")
    [line] = cell.out.splitlines()
    assert line.startswith("hpu:0 (simulated GAUDI2): ")
    assert f"peak {peak}" in line


def test_synchronizations_are_counted_with_their_line(on):
    cell = on("y = x + 1\nfor _ in range(3):\n    value = y.sum().item()")
    assert "3 host synchronisations (line 3)" in cell.out
    [entry] = [
        one for one in on("%hpu_ledger last").result.entries if one.kind == "host synchronisation"
    ]
    assert (entry.count, entry.where) == (3, "line 3")


def test_line_of_a_function_names_its_cell(on, shell):
    on("def read(value):\n    return value.sum().item()")
    number = shell.execution_count - 1
    assert f"1 host synchronisation (In [{number}], line 2)" in on("read(x)").out


def test_last_keeps_the_table_while_other_cells_run(on):
    on("y = x.sum().item()")
    on("number = 3")
    report = on("costs = %hpu_ledger last\ncosts").result
    assert report.synchronizations == 1
    assert report.peak >= 4096
    assert report.compilations == 0


def test_notebook_line_opens_into_the_table(on):
    from hpu_magic.runtime.ledger import LedgerLine

    on("y = x.sum().item()")
    html = LedgerLine(on("%hpu_ledger last").result)._repr_html_()
    assert html.startswith("<details")
    assert html.index("host synchronisation") < html.index("<table>")


def test_cell_that_fails_is_accounted_for_too(on):
    cell = on("y = x + 1\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "peak" in cell.out.splitlines()[-1]


def test_off_ends_the_lines(on):
    on("%hpu_ledger off")
    assert on("y = x + 1").out == ""


def test_last_without_any_is_refused(script):
    out = script(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_line_magic("load_ext", "hpu_magic")
        shell.run_cell("%hpu_ledger last")
        import sys
        print("torch" in sys.modules)
        """
    )
    assert out.splitlines()[-1] == "False"


def test_wrong_word_is_refused(run):
    cell = run("%hpu_ledger maybe")
    assert isinstance(cell.error, UsageError)
    assert "invalid choice: 'maybe'" in cell.err


def test_cpu_fallback_is_named_with_operator_and_line(on, torch):
    cell = on("import torch\n\neigenvalues = torch.linalg.eigvalsh(x.T @ x)")
    assert "1 CPU fallback (aten::" in cell.out
    assert "line 3" in cell.out
    assert sum(on("%hpu_ledger last").result.fallbacks.values()) == 1


def test_plain_context_manager(torch):
    x = torch.ones(3, device="hpu")
    with hpu_magic.ledger() as costs:
        x.sum().item()
    assert costs.touched
    assert costs.synchronizations == 1
    assert costs.entries[0].where.startswith("test_ledger.py, line ")
    with hpu_magic.ledger() as idle:
        pass
    assert not idle.touched
    assert "was not used" in repr(idle)


def test_compilation_is_charged_to_the_cell_with_its_shapes_and_only_once(lazy):
    lazy("%hpu_ledger on\nlayer = nn.Linear(4, 2).to('hpu')")
    run = "layer(torch.ones({rows}, 4).to('hpu'))\nhtcore.mark_step()"
    first = lazy(run.format(rows=5))
    assert "1 graph compiled in" in first.text
    assert "5, 4" in first.text
    assert "compiled" not in lazy(run.format(rows=5)).text.replace("nothing compiled", "")
    assert "1 graph compiled in" in lazy(run.format(rows=6)).text


def test_changing_shapes_are_one_line_of_the_table_each(lazy):
    lazy("%hpu_ledger on")
    lazy(
        "for rows in (21, 22, 23):\n    torch.ones(rows, device='hpu') * 2\n    htcore.mark_step()"
    )
    assert lazy.value(
        "(lambda r: [r.compilations, len(r.lines())])(get_ipython().run_line_magic("
        "'hpu_ledger', 'last'))"
    ) == [3, 3]


def test_line_names_the_shapes_that_changed(lazy):
    lazy("%hpu_ledger on\nlayer = nn.Linear(3, 2).to('hpu')")
    answer = lazy(
        "for rows in (31, 32, 33):\n    layer(torch.ones(rows, 3).to('hpu'))\n"
        "    htcore.mark_step()"
    )
    assert "3 graphs compiled in" in answer.text
    assert "([31, 3], [32, 3], [33, 3], line 3)" in answer.text


def test_compilations_become_marks_of_the_panel(lazy):
    lazy(
        "from hpu_magic.runtime.sampler import Sampler\nsampler = Sampler()\n"
        "x = torch.ones(41).to('hpu')\nsampler.sample()\n"
        "y = x * 3\nhtcore.mark_step()\nsampler.sample()"
    )
    [text] = lazy.value("[mark.text for mark in sampler.marks()[0]]")
    assert text.startswith("1 graph compiled in ")


def test_synchronizations_are_not_counted_before_the_device_reported_one(script):
    out = script(
        """
        import torch
        import hpu_magic
        x = torch.ones(3, device="hpu")
        for read in (False, True, False):
            with hpu_magic.ledger() as costs:
                y = x.sum()
                if read:
                    y.item()
            print(costs.synchronizations)
        """,
        simulated=True,
    )
    assert out.splitlines()[-3:] == ["None", "1", "0"]


def test_cell_whose_graph_runs_again_in_place_has_used_the_device(lazy):
    lazy("%hpu_ledger off\nimport hpu_magic\nx = torch.ones(41, device='hpu')")
    lazy("htcore.mark_step()")
    lazy("x.add_(1)\nhtcore.mark_step()")
    lazy("with hpu_magic.ledger() as costs:\n    x.add_(1)\n    htcore.mark_step()")
    assert lazy.value("[costs.touched, costs.compilations]") == [True, 0]
    lazy("with hpu_magic.ledger() as idle:\n    htcore.mark_step()")
    assert lazy.value("idle.touched") is False
