"""Test the README and its links to all pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def links(page):
    """Return the files of the project that a page links to or shows."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    found = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    return {(page.parent / target).resolve() for target in found}


def test_readme_has_a_picture_and_distinct_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    [picture] = re.findall(r'^<img src="([^"]+)" .*alt="[^"]+">$', "\n".join(lines), re.M)
    assert (ROOT / picture).exists()
    commands = [line.split()[0] for line in lines if line.startswith("%")]
    assert commands[0] == "%load_ext"
    assert len(commands) == len(set(commands))


@pytest.mark.parametrize("name", AT_THE_TOP)
def test_links_of_top_level_pages_exist(name):
    assert [target for target in links(ROOT / name) if not target.exists()] == []


def test_list_of_notebooks_is_complete():
    folder = ROOT / "notebooks"
    assert links(folder / "README.md") == set(folder.glob("*.ipynb"))


def test_each_page_can_be_reached_from_the_readme():
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        targets = {target for page in new for target in links(page)}
        folders = [target for target in targets if target.is_dir()]
        targets |= {page for folder in folders for page in folder.glob("*.md")}
        new = {page for page in targets if page.suffix == ".md" and page.exists()} - reached
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path.stem != "index"}
    assert sorted(pages - reached) == []
