"""Notebooks that a program runs: papermill, and nbconvert with ``--execute``."""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest
import walk
from bs4 import BeautifulSoup

EPOCHS = "epochs = 2"
WIDGETS = re.compile("widget-(view|state)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the walk as a notebook."""
    folder = tmp_path_factory.mktemp("executed")
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in [EPOCHS, *walk.CELLS]]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    for cell in notebook.cells:
        if cell.source == walk.FAILING:
            cell.metadata["tags"] = ["raises-exception"]
    nbformat.write(notebook, folder / "walk.ipynb")
    return folder


def program(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name(name), *arguments]
    return subprocess.run(
        command, cwd=folder, env=walk.ENVIRONMENT, capture_output=True, text=True, timeout=240
    )


@pytest.fixture(scope="module")
def papermill(folder: Path) -> dict[str, Any]:
    """Each cell's outputs, as papermill leaves them; it ends with the first that fails."""
    done = program(folder, "papermill", "walk.ipynb", "executed.ipynb", "-p", "epochs", "3")
    assert done.stderr.rstrip().endswith("ValueError: the data is broken"), done.stderr
    text = (folder / "executed.ipynb").read_text()
    assert not WIDGETS.search(text)
    notebook = nbformat.reads(text, as_version=4)
    return {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    """The page that nbconvert makes."""
    done = program(folder, "jupyter", "nbconvert", "--to", "html", "--execute", "walk.ipynb")
    assert done.returncode == 0, done.stderr
    return (folder / "walk.html").read_text()


@pytest.fixture(scope="module")
def below(page: str) -> dict[str, Any]:
    """What stands below each cell of the page."""
    soup = BeautifulSoup(page, "html.parser")
    cells = soup.select(".jp-CodeCell")
    sources = [EPOCHS, *walk.CELLS]
    assert len(cells) == len(sources)
    return dict(zip(sources, cells, strict=True))


def kinds(outputs: Any) -> set[str]:
    return {kind for output in outputs for kind in output.get("data", ())}


def text(outputs: Any) -> str:
    return "\n".join(output.data["text/plain"] for output in outputs if "data" in output)


def test_papermill_leaves_a_fits_table_and_picture(papermill: dict[str, Any]) -> None:
    shown = [output for output in papermill[walk.FIT] if output.output_type == "display_data"]
    assert len(shown) == 2
    assert kinds(shown) == {"text/html", "text/plain", "image/svg+xml"}
    assert "Fit finished on HPU 5 (simulated GAUDI2)" in text(shown)
    assert re.search(r"steps +12 in", text(shown)), "its parameter was 3 epochs"
    [result] = papermill[walk.RESULT]
    assert result.data["text/plain"] == "('finished', 12)"


def test_papermill_leaves_a_failed_fits_picture_and_the_users_frames(
    papermill: dict[str, Any],
) -> None:
    outputs = papermill[walk.FAILING]
    assert "Fit failed on HPU 5 (simulated GAUDI2) in epoch 2 of 3, batch 2 of 4" in text(outputs)
    assert "image/svg+xml" in kinds(outputs)
    [error] = [output for output in outputs if output.output_type == "error"]
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback))
    assert shown.count("skipping hidden") == 1
    assert "site-packages" not in shown


def test_papermill_leaves_a_panel_that_was_not_stopped_as_a_picture(
    papermill: dict[str, Any],
) -> None:
    [output] = papermill[walk.PANEL]
    assert output.data["image/svg+xml"].startswith("<svg")
    said = output.data["text/plain"]
    assert re.fullmatch(r"Memory of HPU 5 \(simulated GAUDI2\): .* in use, peak .*", said)


def test_papermill_leaves_commands_and_graphs_as_tables(papermill: dict[str, Any]) -> None:
    assert "SIMULATED on the CPU" in text(papermill[walk.DEVICE])
    assert text(papermill[walk.GRAPH]).startswith("Graph step captured on HPU 5")
    assert "Graph step replayed 10 times" in text(papermill[walk.REPLAY])


def test_papermill_leaves_nothing_by_its_class_alone(papermill: dict[str, Any]) -> None:
    shown = {text(outputs) for outputs in papermill.values()}
    assert not [one for one in shown if any(words in one for words in walk.NO_WORDS)]


def test_the_page_holds_a_fits_table_and_picture(below: dict[str, Any]) -> None:
    for cell, said in [(walk.FIT, "Fit finished on HPU 5"), (walk.FAILING, "Fit failed on HPU 5")]:
        assert said in below[cell].get_text()
        assert "steps" in [head.get_text() for head in below[cell].select("table th")]
        assert len(pictures(below[cell])) == 1
    assert "('failed', 5)" in below[walk.FAILED].get_text()


def test_the_page_holds_the_panel_as_a_picture(below: dict[str, Any]) -> None:
    said = below[walk.PANEL].get_text()
    assert re.search(r"Memory of HPU 5 \(simulated GAUDI2\)\s+.* in use, peak ", said)
    assert len(pictures(below[walk.PANEL])) == 1


def test_the_page_holds_commands_and_graphs_as_tables(below: dict[str, Any]) -> None:
    assert len(below[walk.DEVICE].select("table")) == 2  # the device and the list of commands
    for cell in (walk.GRAPH, walk.REPLAY):
        assert len(below[cell].select("table")) == 1, cell


def test_the_page_needs_no_widgets(page: str) -> None:
    assert not WIDGETS.search(page)
    assert not [words for words in walk.NO_WORDS if words in page]


def pictures(cell: Any) -> list[str]:
    """The SVG images of a cell, as elements and as what an image's address holds."""
    inline = [str(found) for found in cell.select("svg:not(svg svg)")]
    addresses = [found["src"] for found in cell.select("img[src^='data:image/svg+xml;base64,']")]
    held = [b64decode(address.partition(",")[2]).decode() for address in addresses]
    assert all(picture.startswith("<svg") for picture in held)
    return inline + held
