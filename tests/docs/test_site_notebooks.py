"""Test execution of the site's notebooks, and their cards in the gallery."""

import base64
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from website import gallery, notebooks
from website.thumbnails import drawn, thumbnail

ROOT = Path(__file__).parents[2]


def test_notebook_is_executed_again_only_after_a_change(tmp_path):
    package, cache = tmp_path / "package", tmp_path / "cache"
    package.mkdir()
    (package / "a.py").write_text("first")
    notebook = tmp_path / "counted.ipynb"
    counted = f"with open({str(tmp_path / 'log')!r}, 'a') as log: print(log.write('x'))"
    nbformat.write(new_notebook(cells=[new_code_cell(counted, id="run")]), notebook)

    def shown():
        environment = notebooks.environment_of(package)
        done = notebooks.executed([notebook], environment, cache)
        return done["counted"].cells[0].outputs[0].text

    assert [shown(), shown()] == ["1\n", "1\n"]
    assert (tmp_path / "log").read_text() == "x"
    (package / "a.py").write_text("second")
    assert shown() == "1\n"
    assert (tmp_path / "log").read_text() == "xx"
    assert len(list(cache.iterdir())) == 1


def test_gallery_has_a_card_for_each_notebook(tmp_path):
    files = sorted((ROOT / "notebooks").glob("*.ipynb"))
    sources = {path.stem: nbformat.read(path, as_version=4) for path in files}
    gallery.write(sources, tmp_path / "notebooks")
    page = (tmp_path / "notebooks" / "index.md").read_text()
    for name, notebook in sources.items():
        assert page.count(f":link: {name}\n") == 1
        assert f"grid-item-card}} {gallery.title(notebook)}\n" in page
        assert len(list((tmp_path / "notebooks" / "pictures").glob(f"{name}.*"))) == 1
    one_less = {name: one for name, one in sources.items() if name != "fp8"}
    with pytest.raises(ValueError, match="differ in fp8: fix GALLERY"):
        gallery.write(one_less, tmp_path / "less")


def cell(**data):
    kinds = {"png": "image/png", "svg": "image/svg+xml", "text": "text/plain"}
    bundle = {kinds[kind]: value for kind, value in data.items()}
    shown = [new_output("display_data", data=bundle)] if data else []
    return new_notebook(
        cells=[new_markdown_cell("# T"), new_code_cell("1 < 2", id="c", outputs=shown)]
    )


def test_thumbnail_shows_the_output_of_a_cell():
    png = base64.b64encode(b"PNG").decode()
    assert thumbnail(cell(png=png, text="figure"), "c") == (".png", b"PNG")
    suffix, picture = thumbnail(cell(svg='<svg width="3"><g/></svg>', text="chart"), "c")
    assert (suffix, picture) == (
        ".svg",
        b'<svg width="3"><rect width="100%" height="100%" fill="#fff"/><g/></svg>',
    )
    assert thumbnail(cell(text="\x1b[1mbold\x1b[0m"), "c") == (".svg", drawn("bold"))
    assert thumbnail(cell(), "c") == (".svg", drawn("1 < 2"))
    assert b">1 &lt; 2</text>" in drawn("1 < 2")
    with pytest.raises(ValueError, match="no cell 'd'"):
        thumbnail(cell(), "d")
