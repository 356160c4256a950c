"""The quickstart notebook runs as it is delivered and keeps its promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import json; print(json.dumps(summary))"))
    folder = tmp_path_factory.mktemp("quickstart")
    client = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(folder)}})
    client.execute()
    assert list(folder.iterdir()) == [], "the notebook leaves files behind"
    return notebook


def outputs_of(notebook: Any, cell_id: str) -> list[Any]:
    [cell] = [cell for cell in notebook.cells if cell.id == cell_id]
    return list(cell.outputs)


def test_source_carries_no_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)


def test_every_step_is_explained_in_two_sentences() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    for cell in cells[1:]:
        if cell.cell_type == "markdown":
            heading, _, text = cell.source.partition("\n")
            assert heading.startswith("## ")
            assert text.count(".\n") + text.endswith(".") == 2, text


def test_digits_are_read_with_97_percent_accuracy(executed: Any) -> None:
    summary = json.loads(executed.cells[-1].outputs[0].text)
    assert summary["accuracy"] >= 0.97
    assert summary["device"] == "hpu:0 (simulated GAUDI2)"
    assert summary["peak_memory"] > 0


def test_newcomer_meets_no_warnings(executed: Any) -> None:
    streams = [o for cell in executed.cells for o in cell.get("outputs", ()) if "name" in o]
    lines = [line for o in streams if o.name == "stderr" for line in o.text.splitlines()]
    # The engine's progress, where this is its first use on the machine.
    assert [line for line in lines if line and not line.startswith("hpu_magic:")] == []


def test_saved_notebook_stays_small_and_readable(executed: Any) -> None:
    source = nbformat.writes(nbformat.read(NOTEBOOK, as_version=4))
    assert len(nbformat.writes(executed)) - len(source) < 100_000
    kinds = {kind for output in outputs_of(executed, "fit") for kind in output.data}
    assert kinds == {"image/svg+xml", "text/html", "text/plain"}
