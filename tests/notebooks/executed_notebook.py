"""Execution of a notebook of the project in a new kernel."""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
COMPLETE = "HPU_MAGIC_TEST_ALL_EXAMPLES" in os.environ
"""Whether to run the code as it is; otherwise, tests may replace models and fits by small ones."""


def source(name: str) -> Any:
    """Return a notebook of the project."""
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


class Executed:
    """A notebook after its execution."""

    def __init__(self, name: str, notebook: Any) -> None:
        self.name = name
        self.notebook = notebook

    def text(self, cell_id: str) -> str:
        """Return all outputs of a cell as text."""
        [cell] = [cell for cell in self.notebook.cells if cell.id == cell_id]
        shown = []
        for output in cell.outputs:
            if output.output_type == "error":
                shown.append(f"{output.ename}: {output.evalue}")
            else:
                shown.append(output.get("text") or output.data["text/plain"])
        return re.sub(r"\x1b\[[\d;]*m", "", "\n".join(shown))

    def warnings(self) -> list[str]:
        """Return the stderr lines of cells that should not fail, without the engine's progress."""
        lines = [
            line
            for cell in self.notebook.cells
            if "raises-exception" not in cell.metadata.get("tags", ())
            for output in cell.get("outputs", ())
            if output.get("name") == "stderr"
            for line in output.text.splitlines()
        ]
        return [line for line in lines if line and not line.startswith("hpu_magic:")]

    def grown(self) -> int:
        """Return the number of characters that the outputs add to the saved notebook."""
        return len(nbformat.writes(self.notebook)) - len(nbformat.writes(source(self.name)))


def shortened(name: str, shorter: Mapping[str, str]) -> Any:
    """Return a notebook in which parts of the code are replaced by other code."""
    notebook = source(name)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in shorter.items():
        assert any(old in cell.source for cell in cells), f"no cell contains {old!r}"
        for cell in cells:
            cell.source = cell.source.replace(old, new)
    return notebook


def execute(name: str, folder: Path, shorter: Mapping[str, str] | None = None) -> Executed:
    """Execute a notebook on private cards in an empty folder, where it must not leave files.

    ``shorter`` maps parts of its code to code that takes less time, unless `COMPLETE` is true.
    """
    notebook = source(name) if COMPLETE else shortened(name, shorter or {})
    client = NotebookClient(
        notebook,
        timeout=280,
        coalesce_streams=True,  # a busy machine may send a line and its end separately
        resources={"metadata": {"path": str(folder)}},
    )
    with tempfile.TemporaryDirectory() as private:
        temporary, cards = Path(private, "tmp"), Path(private, "cards")
        temporary.mkdir()  # for files that notebooks write to temporary folders
        places = {"TMPDIR": str(temporary), "HPU_MAGIC_CARDS_DIR": str(cards)}
        client.execute(env={**os.environ, **places})
    assert list(folder.iterdir()) == [], "the notebook leaves files behind"
    return Executed(name, notebook)
