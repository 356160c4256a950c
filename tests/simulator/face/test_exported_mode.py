"""Test the mode in the environment after the bridge is loaded."""

import pytest

EXPORTED = """
import os, subprocess, sys
import torch, habana_frameworks.torch
from habana_frameworks.torch.utils.internal import is_lazy
child = (
    "import os; before = os.environ.get('PT_HPU_LAZY_MODE'); import habana_frameworks.torch;"
    "from habana_frameworks.torch.utils.internal import is_lazy; print(before, is_lazy())"
)
sys.stdout.write(f"{os.environ.get('PT_HPU_LAZY_MODE')} {is_lazy()} ")
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "import torch; " + child], check=True)
"""


@pytest.mark.parametrize(
    ("flag", "exported"), [(None, "0 False"), ("1", "1 True"), ("2", "2 True")]
)
def test_loaded_mode_is_exported_to_child_processes(forked_script, monkeypatch, flag, exported):
    monkeypatch.delenv("PT_HPU_LAZY_MODE", raising=False)
    environment = {} if flag is None else {"PT_HPU_LAZY_MODE": flag}
    assert forked_script(EXPORTED, simulated=True, **environment) == f"{exported} {exported}\n"


def test_mode_is_not_exported_before_the_bridge_is_loaded(script, monkeypatch):
    monkeypatch.delenv("PT_HPU_LAZY_MODE", raising=False)
    code = (
        "import os, hpu_magic.simulator as s; s.activate(); print('PT_HPU_LAZY_MODE' in os.environ)"
    )
    assert script(code) == "False\n"


@pytest.mark.parametrize("first", ["%load_ext hpu_magic", "import torch"])
def test_exported_mode_is_not_stored_as_a_setting(forked_script, monkeypatch, tmp_path, first):
    """A front end would store such a setting in the notebook. The user can still select a mode."""
    monkeypatch.delenv("PT_HPU_LAZY_MODE", raising=False)
    code = f"""
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        cells = {first!r}, "import torch", "%load_ext hpu_magic", "%hpu_mode", "%hpu_mode lazy"
        for cell in cells:
            shell.run_cell(cell, store_history=True)
    """
    out = forked_script(
        code, simulated=True, hides_torch=True, JPY_SESSION_NAME=str(tmp_path / "a.ipynb")
    )
    assert out.count("loaded     eager") == 2
    assert out.index("requested  the library's default") < out.index("requested  lazy")
    assert "restart the kernel manually (in JupyterLab: Kernel, Restart)." in out


def test_mode_set_by_the_user_is_a_setting(forked_script):
    code = """
        import hpu_magic, torch
        from hpu_magic.runtime.execution.mode import requested_mode
        print(requested_mode())
    """
    printed = forked_script(code, simulated=True, hides_torch=True, PT_HPU_LAZY_MODE="1")
    assert printed == "lazy\n"
