"""Test the site built by Sphinx, without outputs of notebooks."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from website.api import ERRORS, FUNCTIONS, lightning

import hpu_magic

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory, forked_python):
    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("Sphinx and MyST are not installed: requirements-docs.txt names them")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "tools/build_site.py", "--fast", "--into", str(folder)]
    printed, errors = folder / "printed", folder / "errors"
    with printed.open("w") as stdout, errors.open("w") as stderr:
        build = forked_python.popen(
            command,
            cwd=str(PROJECT),
            env=os.environ,
            stdout=stdout,
            stderr=stderr,
            hides_torch=True,
        )
        status = build.wait(240)
    assert (status, errors.read_text()) == (0, "")
    assert printed.read_text().count("\n") == 1  # imported modules print nothing
    return folder / "site"


def test_each_page_is_built(site):
    written = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    built = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    assert written <= built


@pytest.mark.parametrize(
    ("page", "entries"),
    [
        ("vendor_api", ["core.mark_step", "hpu::accumulate_grads_", "caching_allocator_alloc"]),
        ("lightning_habana", ["HPUDeepSpeedPrecisionPlugin", "resources.SYNAPSE_1_11"]),
        ("huggingface", ["notebook_launcher", "test_fit_equals_the_cpu"]),
        ("estimates", ["matrix_efficiency.gaudi2", "bloomz-176b", "8192 x 8192", "zero3"]),
    ],
)
def test_pages_end_with_tables_of_data(site, page, entries):
    text = (site / f"{page}.html").read_text()
    assert [entry for entry in entries if entry not in text] == []


def test_each_public_name_has_an_entry(site):
    entries = {
        name
        for page in (site / "reference" / "api").glob("*.html")
        for name in re.findall(r'<dt class="sig[^>]* id="hpu_magic\.([^"]+)"', page.read_text())
    }
    functions = set(hpu_magic.__all__) - {"__version__"}
    classes = {f"lightning.{name}" for name in lightning().__all__}
    assert functions <= entries
    assert classes <= entries
    results = {name for group in FUNCTIONS.values() for names in group.values() for name in names}
    assert {name for name in entries if name.count(".") == 0} == functions
    assert {*results, *ERRORS} <= entries


def test_signatures_contain_no_private_names(site):
    defaults = {
        default
        for page in (site / "reference" / "api").glob("*.html")
        for default in re.findall(r'default_value"><span class="pre">([^<]*)', page.read_text())
    }
    assert {"0.1", "'gaudi2'"} <= defaults
    private = re.compile(r"(\w+\.)*(_|[A-Z][A-Z_]+$)|lambda")
    assert [default for default in defaults if private.match(default)] == []


def test_pages_load_nothing_external_and_contain_no_local_paths(site):
    for page in set(site.rglob("*.html")) - set((site / "_static").rglob("*.html")):
        text = page.read_text()
        fetched = re.findall(
            r"<(?:script|img|source|link|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)", text
        )
        assert [item for item in fetched if re.match(r"(https?:)?//", item)] == [], page
        assert str(PROJECT) not in text, page
        missing = [each for each in fetched if not (page.parent / each.partition("?")[0]).exists()]
        assert [one for one in missing if not one.startswith(("data:", "#"))] == [], page
