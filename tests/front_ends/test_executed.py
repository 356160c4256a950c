"""Test notebooks run by papermill and by nbconvert with ``--execute``."""

import re
import sys
from base64 import b64decode
from functools import partial
from pathlib import Path

import nbformat
import pytest
import walk
from bs4 import BeautifulSoup
from started_process import completed

EPOCHS = "epochs = 2"
WIDGETS = re.compile("widget-(view|state)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a notebook that contains the cells of `walk`."""
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


@pytest.fixture(scope="module")
def program(folder, forked_python):
    """Run a module in the folder, with kernels that are forks."""
    requests = forked_python.requests.fileno()
    program = Path(__file__).parents[1] / "forking_server.py"
    options = {"cwd": folder, "env": walk.ENVIRONMENT, "timeout": 240, "pass_fds": [requests]}
    return partial(completed, sys.executable, program, requests, **options)


@pytest.fixture(scope="module")
def papermill(folder, program):
    """Outputs of each cell in papermill's notebook, which ends at the failed cell."""
    done = program("papermill", "walk.ipynb", "executed.ipynb", "-p", "epochs", "3")
    assert done.stderr.rstrip().endswith("ValueError: the data is broken"), done.stderr
    text = (folder / "executed.ipynb").read_text()
    assert not WIDGETS.search(text)
    notebook = nbformat.reads(text, as_version=4)
    return {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


@pytest.fixture(scope="module")
def page(folder, program):
    """The HTML page of nbconvert."""
    done = program("nbconvert", "--to", "html", "--execute", "walk.ipynb")
    assert done.returncode == 0, done.stderr
    return (folder / "walk.html").read_text()


@pytest.fixture(scope="module")
def below(page):
    """Each cell of the page with its outputs."""
    soup = BeautifulSoup(page, "html.parser")
    cells = soup.select(".jp-CodeCell")
    sources = [EPOCHS, *walk.CELLS]
    assert len(cells) == len(sources)
    return dict(zip(sources, cells, strict=True))


def kinds(outputs):
    return {kind for output in outputs for kind in output.get("data", ())}


def text(outputs):
    return "\n".join(output.data["text/plain"] for output in outputs if "data" in output)


def test_papermill_stores_table_and_picture_of_a_fit(papermill):
    shown = [output for output in papermill[walk.FIT] if output.output_type == "display_data"]
    assert len(shown) == 2
    assert kinds(shown) == {"text/html", "text/plain", "image/svg+xml"}
    assert "Fit finished on HPU 5 (simulated GAUDI2)" in text(shown)
    assert re.search(r"steps +12 in", text(shown))  # the parameter sets 3 epochs
    [result] = papermill[walk.RESULT]
    assert result.data["text/plain"] == "('finished', 12)"


def test_papermill_stores_a_failed_fits_picture_and_user_frames(papermill):
    outputs = papermill[walk.FAILING]
    assert "Fit failed on HPU 5 (simulated GAUDI2) in epoch 2 of 3, batch 2 of 4" in text(outputs)
    assert "image/svg+xml" in kinds(outputs)
    [error] = [output for output in outputs if output.output_type == "error"]
    shown = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error.traceback))
    assert shown.count("skipping hidden") == 1
    assert "site-packages" not in shown


def test_papermill_stores_a_running_panel_as_a_picture(papermill):
    [output] = papermill[walk.PANEL]
    assert output.data["image/svg+xml"].startswith("<svg")
    line = output.data["text/plain"]
    assert re.fullmatch(r"Memory of HPU 5 \(simulated GAUDI2\): .* in use, peak .*", line)


def test_papermill_stores_commands_and_graphs_as_tables(papermill):
    assert "SIMULATED on the CPU" in text(papermill[walk.DEVICE])
    assert text(papermill[walk.GRAPH]).startswith("Graph step captured on HPU 5")
    assert "Graph step replayed 10 times" in text(papermill[walk.REPLAY])


def test_papermill_stores_no_output_that_is_only_a_class_name(papermill):
    shown = {text(outputs) for outputs in papermill.values()}
    assert not [each for each in shown if any(words in each for words in walk.NO_WORDS)]


def test_html_page_contains_table_and_picture_of_a_fit(below):
    titles = {walk.FIT: "Fit finished on HPU 5", walk.FAILING: "Fit failed on HPU 5"}
    for cell, title in titles.items():
        assert title in below[cell].get_text()
        assert "steps" in [head.get_text() for head in below[cell].select("table th")]
        assert len(pictures(below[cell])) == 1
    assert "('failed', 5)" in below[walk.FAILED].get_text()


def test_html_page_contains_the_panel_as_a_picture(below):
    shown = below[walk.PANEL].get_text()
    assert re.search(r"Memory of HPU 5 \(simulated GAUDI2\)\s+.* in use, peak ", shown)
    assert len(pictures(below[walk.PANEL])) == 1


def test_html_page_contains_commands_and_graphs_as_tables(below):
    assert len(below[walk.DEVICE].select("table")) == 2  # the device and the list of commands
    for cell in (walk.GRAPH, walk.REPLAY):
        assert len(below[cell].select("table")) == 1, cell


def test_html_page_contains_no_widgets(page):
    assert not WIDGETS.search(page)
    assert not [words for words in walk.NO_WORDS if words in page]


def pictures(cell):
    """Return the SVG images of a cell, which are inline or encoded in a URL."""
    inline = [str(found) for found in cell.select("svg:not(svg svg)")]
    addresses = [found["src"] for found in cell.select("img[src^='data:image/svg+xml;base64,']")]
    held = [b64decode(address.partition(",")[2]).decode() for address in addresses]
    assert all(picture.startswith("<svg") for picture in held)
    return inline + held
