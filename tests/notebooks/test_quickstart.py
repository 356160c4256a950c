"""Test the quickstart notebook and `make demo`."""

import base64
import contextlib
import io
import re
from pathlib import Path

import nbformat
import pytest
from PIL import Image

from tools import demo

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory, forked_kernels):
    """The printed lines of `make demo`, and the executed notebook."""
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROOT", folder)
        patch.setattr(demo, "EXECUTED", folder / "build" / "quickstart.ipynb")
        printed = io.StringIO()
        with forked_kernels(), contextlib.redirect_stdout(printed):
            assert demo.main() == 0
        [written] = demo.EXECUTED.parent.iterdir()  # the notebook writes no other files
        return printed.getvalue().splitlines(), nbformat.read(written, as_version=4)


@pytest.fixture(scope="module")
def executed(ran):
    return ran[1]


def outputs_of(notebook, cell_id):
    [cell] = [cell for cell in notebook.cells if cell.id == cell_id]
    return list(cell.outputs)


def test_demo_reports_an_accuracy_of_97_percent(ran):
    *_, place, last = ran[0]
    assert place == f"The executed notebook is {Path('build', 'quickstart.ipynb')}."
    found = re.fullmatch(
        r"demo: accuracy (0\.\d{3}|1\.000) on HPU \d \(simulated GAUDI2\), "
        r"peak memory (\d+\.\d) MiB, \d+ s",
        last,
    )
    assert found, last
    assert float(found[1]) >= 0.97
    assert float(found[2]) > 0


def test_demo_prints_each_step_of_the_notebook(ran, executed):
    cells = [cell for cell in executed.cells if cell.cell_type == "markdown"]
    assert ran[0][:-2] == [cell.source.splitlines()[0].lstrip("# ") for cell in cells]


def test_demo_fails_when_the_accuracy_is_too_low(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setattr(demo, "EXECUTED", tmp_path / "build" / "quickstart.ipynb")
    monkeypatch.setattr(demo, "execute", lambda notebook: {"accuracy": 0.96})
    assert demo.main() == 1
    assert capsys.readouterr().err == "demo: accuracy 0.960 is below 0.97.\n"


def test_digits_are_drawn(executed):
    # The device may print a message when it loads.
    [shown] = [output for output in outputs_of(executed, "data") if output.output_type != "stream"]
    picture = Image.open(io.BytesIO(base64.b64decode(shown.data["image/png"])))
    assert picture.size == (800, 40)
    assert len(picture.getcolors()) > 20


def test_quickstart_prints_no_warnings(executed):
    streams = [o for cell in executed.cells for o in cell.get("outputs", ()) if "name" in o]
    lines = [line for o in streams if o.name == "stderr" for line in o.text.splitlines()]
    # The first use on a machine prints the engine's progress.
    assert [line for line in lines if line and not line.startswith("hpu_magic:")] == []


def test_executed_quickstart_is_small(executed):
    source = nbformat.writes(nbformat.read(NOTEBOOK, as_version=4))
    assert len(nbformat.writes(executed)) - len(source) < 100_000
    kinds = {kind for output in outputs_of(executed, "fit") for kind in output.data}
    assert kinds == {"image/svg+xml", "text/html", "text/plain"}
