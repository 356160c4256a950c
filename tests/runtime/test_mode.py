"""Test %hpu_mode: the loaded and the requested mode, and the remembered setting."""

import json

from hpu_magic.runtime.start import restart


def test_mode_requested_before_torch_is_imported_takes_effect(notebook):
    out = notebook(
        "%load_ext hpu_magic",
        "%hpu_mode lazy",
        "import os; print('variable', os.environ['PT_HPU_LAZY_MODE'])",
    )
    assert "variable 1" in out
    assert "restart" not in out.lower()


def test_mode_requested_after_the_import_needs_a_restart(run, shell, torch, forgetful):
    cell = run("%hpu_mode lazy")
    assert cell.result.loaded == "eager"
    assert cell.result.requested == "lazy"
    assert cell.result.needs_restart
    assert "read only once, at import: end this session and start a new one." in cell.out
    assert "simulated" in cell.out
    assert "Lazy mode is a legacy mode" in cell.out


def test_report_names_the_line_that_imported_torch(notebook):
    out = notebook("%load_ext hpu_magic", "a = 1", "b = 2\nimport torch", "%hpu_mode")
    assert "`import torch` (In [3], line 2)" in out


def test_report_names_the_package_that_imported_torch(notebook, tmp_path):
    (tmp_path / "bringer.py").write_text("import torch\n")
    out = notebook(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})",
        "%load_ext hpu_magic",
        "import bringer",
        "%hpu_mode",
    )
    assert "`import bringer` (In [3], line 1), through bringer" in out


def test_import_before_the_extension_is_found_in_the_history(notebook):
    out = notebook("x = 1", "import torch", "%load_ext hpu_magic", "%hpu_mode")
    assert "`import torch` (In [2], line 1)" in out


def test_remembered_mode_is_applied_on_the_next_start_of_the_same_notebook(notebook):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    show = ("%load_ext hpu_magic", "import os; print(os.environ.get('PT_HPU_LAZY_MODE'))")
    again = notebook(*show)
    assert "Remembered for this notebook: PT_HPU_LAZY_MODE=1" in again
    assert again.strip().endswith("1")
    assert notebook(*show, name="other").strip().endswith("None")
    notebook("%load_ext hpu_magic", "%hpu_mode eager")
    assert notebook(*show).strip().endswith("0")


def test_without_a_server_the_mode_is_remembered_for_a_manual_restart(rejected, torch, forgetful):
    message = rejected("%hpu_mode lazy --restart")
    assert message.endswith("end this session and start a new one. The setting is remembered.")
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "1"}


def test_unnecessary_restart_is_skipped(run, torch, forgetful):
    out = run("%hpu_mode eager --restart").out
    assert "No restart is needed" in out
    assert "legacy" not in out


def test_unknown_mode_is_rejected(run):
    assert "needs eager or lazy, not 'graph'" in run("%hpu_mode graph").err


def test_error_in_a_script_names_the_environment_variable(forked_script):
    code = """
    import hpu_magic, torch
    try:
        hpu_magic.mode("lazy")
    except ValueError as error:
        print(error)
    """
    assert "PT_HPU_LAZY_MODE=1" in forked_script(code, simulated=True)


def test_corrupt_settings_file_is_ignored(run, shell, forgetful):
    restart.remember({"PT_HPU_LAZY_MODE": "1"})
    path = restart._file()
    assert json.loads(path.read_text())["environment"] == {"PT_HPU_LAZY_MODE": "1"}
    path.write_text("[")
    assert restart.recall() == {}
    restart.remember({"PT_HPU_LAZY_MODE": "0"})
    assert restart.recall() == {"PT_HPU_LAZY_MODE": "0"}


def test_mode_survives_run_all_even_if_torch_is_imported_first(notebook):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    out = notebook("import torch", "%load_ext hpu_magic", "%hpu_mode lazy")
    assert "Remembered for this notebook: PT_HPU_LAZY_MODE=1" in out
    assert "loaded     lazy" in out
    assert "restart" not in out.lower()


def test_remembered_mode_applied_too_late_says_where_to_load_the_extension(notebook):
    notebook("%load_ext hpu_magic", "import torch", "%hpu_mode lazy")
    out = notebook("import torch", "%load_ext hpu_magic", HPU_MAGIC_SIMULATOR="1")
    assert "already been imported: PT_HPU_LAZY_MODE=1" in out
    assert "above the first import of torch" in out
