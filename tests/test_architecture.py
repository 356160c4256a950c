"""Imports follow the tables of docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "hpu_magic"
RUNTIME, NATIVE = PACKAGE / "runtime", PACKAGE / "simulator" / "native"
PAGE = (PROJECT / "docs" / "architecture.md").read_text()
OF_RUNTIME, OF_NATIVE = "folder of `runtime/`", "folder of `simulator/native/`"

# These modules import parts by name when a function or command is first used.
ENTRIES = {"__init__", "__main__"}


def rows(heading):
    """Return the rows of the table whose first column has this heading."""
    table = PAGE[PAGE.index(f"\n| {heading} |") + 1 :].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def folders(heading):
    return [re.findall(r"\w+", first)[0] for first, *_ in rows(heading)]


def parts():
    """Return the modules and packages of hpu_magic with their allowed imports."""
    allowed = {}
    *uppers, base = rows("part")
    everywhere = set(re.findall(r"(\w+)(?:/|\.py)`", base[0]))
    for first, _, imports in uppers:
        [name] = re.findall(r"`hpu_magic/(\w+)(?:/|\.py)`", first)
        allowed[name] = {name, *re.findall(r"[\w.]+", imports)} | everywhere
    return allowed | dict.fromkeys(everywhere, everywhere)


PARTS = parts()


def imported(source):
    """Yield the full names of all imports in a Python file."""
    package = list(source.relative_to(PROJECT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def included(source):
    return re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE)


def test_tables_list_all_modules_and_folders():
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert PARTS.keys() == (modules | packages) - ENTRIES
    for heading, place in [(OF_RUNTIME, RUNTIME), (OF_NATIVE, NATIVE)]:
        there = {path.name for path in place.iterdir() if path.is_dir()} - {"__pycache__"}
        assert set(folders(heading)) == there


def test_paths_on_the_page_exist():
    paths = re.findall(r"`([\w./-]+(?:/|\.(?:py|ts|tsv|txt|cpp|h|json|toml|yaml)))[ `]", PAGE)
    roots = (PACKAGE, PROJECT, RUNTIME, NATIVE)
    missing = [path for path in paths if not any((root / path).exists() for root in roots)]
    assert missing == []


@pytest.mark.parametrize("part", sorted(PARTS))
def test_part_imports_only_allowed_parts(part):
    place = PACKAGE / part
    sources = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    upwards = [
        (str(source.relative_to(PROJECT)), name)
        for source in sources
        for name in imported(source)
        if name.startswith("hpu_magic.") and name != "hpu_magic.__version__"
        if not any(f"{name}.".startswith(f"hpu_magic.{each}.") for each in PARTS[part])
    ]
    assert upwards == []


def test_runtime_folders_import_only_folders_above():
    order = folders(OF_RUNTIME)
    upwards = [
        (str(source.relative_to(RUNTIME)), name)
        for rank, folder in enumerate(order)
        for source in (RUNTIME / folder).rglob("*.py")
        for name in imported(source)
        if name.startswith("hpu_magic.runtime.") and name.split(".")[2] not in order[: rank + 1]
    ]
    assert upwards == []


def test_engine_folders_include_only_folders_above():
    order = folders(OF_NATIVE)
    upwards = [
        (str(source.relative_to(NATIVE)), header)
        for rank, folder in enumerate(order)
        for source in (NATIVE / folder).rglob("*.[ch]*")
        for header in included(source)
        if header.split("/")[0] not in order[: rank + 1]
    ]
    assert upwards == []
