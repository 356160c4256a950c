"""%hpu_mode: the loaded and the requested mode, and what is remembered."""

from __future__ import annotations

import json

import pytest
from IPython.core.error import UsageError

from hpu_magic.runtime.start import restart

IPYTHON = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for source in {cells!r}:
    shell.run_cell(source, store_history=True)
"""


@pytest.fixture
def notebook(script, tmp_path):
    """Run cells in a fresh process of the same notebook."""

    def run_cells(*cells, name=str(tmp_path / "work.ipynb"), **environment):
        return script(IPYTHON.format(cells=list(cells)), JPY_SESSION_NAME=name, **environment)

    return run_cells


def test_mode_asked_for_before_torch_is_loaded_is_taken(notebook):
    out = notebook(
        "%load_ext hpu_magic",
        "%hpu_mode lazy",
        "import os; print('variable', os.environ['PT_HPU_LAZY_MODE'])",
    )
    assert "variable 1" in out
    assert "restart" not in out.lower()


def test_mode_asked_for_too_late_says_which_line_loaded_it_and_offers_the_restart(
    run, shell, torch, forgetful
):
    cell = run("%hpu_mode lazy")
    assert cell.result.loaded == "eager"
    assert cell.result.requested == "lazy"
    assert cell.result.needs_restart
    assert "read once, at import: end this session and start it again." in cell.out
    assert "simulated" in cell.out


def test_the_line_that_loaded_torch_is_named(notebook):
    out = notebook("%load_ext hpu_magic", "a = 1", "b = 2\nimport torch", "%hpu_mode")
    assert "`import torch` (In [3], line 2)" in out


def test_the_package_that_loaded_torch_is_named(notebook, tmp_path):
    (tmp_path / "bringer.py").write_text("import torch\n")
    out = notebook(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "%load_ext hpu_magic",
        "import bringer",
        "%hpu_mode",
    )
    assert "`import bringer` (In [3], line 1), through bringer" in out


def test_torch_loaded_before_the_extension_is_found_in_the_history(notebook):
    out = notebook("x = 1", "import torch", "%load_ext hpu_magic", "%hpu_mode")
    assert "`import torch` (In [2], line 1)" in out


def test_remembered_mode_is_applied_at_the_next_start_of_the_same_notebook(notebook, tmp_path):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    show = ("%load_ext hpu_magic", "import os; print(os.environ.get('PT_HPU_LAZY_MODE'))")
    again = notebook(*show)
    assert "Remembered for this notebook: PT_HPU_LAZY_MODE=1" in again
    assert again.strip().endswith("1")
    assert notebook(*show, name=str(tmp_path / "other.ipynb")).strip().endswith("None")
    notebook("%load_ext hpu_magic", "%hpu_mode eager")
    assert notebook(*show).strip().endswith("0")


def test_without_a_server_the_user_restarts_and_the_mode_is_remembered(run, torch, forgetful):
    cell = run("%hpu_mode lazy --restart")
    assert isinstance(cell.error, UsageError)
    assert "end this session and start it again. The setting is remembered.\n" in cell.err
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "1"}


def test_unneeded_restart_is_not_done(run, torch, forgetful):
    assert "No restart is needed" in run("%hpu_mode eager --restart").out


def test_unknown_mode_is_refused(run):
    assert "needs eager or lazy, not 'graph'" in run("%hpu_mode graph").err


def test_script_is_told_to_set_the_variable(forked_script):
    code = """
    import hpu_magic, torch
    try:
        hpu_magic.mode("lazy")
    except ValueError as refused:
        print(refused)
    """
    assert "PT_HPU_LAZY_MODE=1" in forked_script(code, simulated=True)


def test_spoilt_memory_counts_as_none(run, shell, forgetful):
    restart.remember({"PT_HPU_LAZY_MODE": "1"})
    path = restart._file()
    assert json.loads(path.read_text())["environment"] == {"PT_HPU_LAZY_MODE": "1"}
    path.write_text("[")
    assert restart.recall() == {}
    restart.remember({"PT_HPU_LAZY_MODE": "0"})
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "0"}


def test_mode_survives_run_all_even_where_torch_comes_before_the_extension(notebook):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    out = notebook("import torch", "%load_ext hpu_magic", "%hpu_mode lazy")
    assert "Remembered for this notebook: PT_HPU_LAZY_MODE=1" in out
    assert "loaded     lazy" in out
    assert "restart" not in out.lower()


def test_remembered_mode_that_comes_too_late_says_where_to_put_the_extension(notebook):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    out = notebook("import torch", "%load_ext hpu_magic", HPU_MAGIC_SIMULATOR="1")
    assert "read already: PT_HPU_LAZY_MODE=1" in out
    assert "above the first import of torch" in out
