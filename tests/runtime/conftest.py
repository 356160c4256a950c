"""Fixture for cells in a new process."""

from collections.abc import Callable
from pathlib import Path

import pytest

_CELLS = """
from IPython.core.interactiveshell import InteractiveShell
for source in {cells!r}:
    InteractiveShell.instance().run_cell(source, store_history=True)
"""


@pytest.fixture
def notebook(forked_script: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Run cells in a new process of the same notebook and return the output."""

    def run_cells(*cells: str, name: str = "work", **environment: str) -> str:
        notebook = str(tmp_path / f"{name}.ipynb")
        code = _CELLS.format(cells=list(cells))
        return forked_script(code, hides_torch=True, JPY_SESSION_NAME=notebook, **environment)

    return run_cells
