"""The quickstart notebook runs as it is delivered and keeps its promise."""

from __future__ import annotations

import base64
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from PIL import Image

from tools import demo

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `make demo` printed, and the notebook that it wrote."""
    folder = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROOT", folder)
        patch.setattr(demo, "EXECUTED", folder / "build" / "quickstart.ipynb")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            assert demo.main() == 0
        [written] = demo.EXECUTED.parent.iterdir()  # or the notebook leaves files behind
        return printed.getvalue().splitlines(), nbformat.read(written, as_version=4)


@pytest.fixture(scope="module")
def executed(ran: Any) -> Any:
    return ran[1]


def outputs_of(notebook: Any, cell_id: str) -> list[Any]:
    [cell] = [cell for cell in notebook.cells if cell.id == cell_id]
    return list(cell.outputs)


def test_digits_are_read_with_97_percent_accuracy_as_the_demos_last_line_says(ran: Any) -> None:
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


def test_demo_names_every_step_of_the_notebook(ran: Any, executed: Any) -> None:
    cells = [cell for cell in executed.cells if cell.cell_type == "markdown"]
    assert ran[0][:-2] == [cell.source.splitlines()[0].lstrip("# ") for cell in cells]


def test_demo_fails_when_the_accuracy_is_too_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setattr(demo, "EXECUTED", tmp_path / "build" / "quickstart.ipynb")
    monkeypatch.setattr(demo, "execute", lambda notebook: {"accuracy": 0.96})
    assert demo.main() == 1
    assert capsys.readouterr().err == "demo: accuracy 0.960 is below 0.97.\n"


def test_the_drawn_digits_are_shown(executed: Any) -> None:
    [shown] = outputs_of(executed, "data")
    picture = Image.open(io.BytesIO(base64.b64decode(shown.data["image/png"])))
    assert picture.size == (800, 40)
    assert len(picture.getcolors()) > 20


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
