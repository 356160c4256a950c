"""Imports run downwards, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "hpu_magic"
RUNTIME, NATIVE = PACKAGE / "runtime", PACKAGE / "simulator" / "native"

# Part: the parts that it may import, besides itself and what lies below all of them.
PARTS = {
    "magics": {
        "commands",
        "runtime",
        "panels",
        "fits",
        "lightning",
        "huggingface",
        "parallel",
        "health",
        "estimate",
        "advice",
        "backend",
    },
    "commands": {"runtime", "panels", "health", "backend"},
    "estimate": {"runtime", "backend"},
    "advice": {"estimate", "runtime", "backend"},
    "fits": {"runtime", "panels", "lightning", "huggingface", "backend"},
    "panels": {"runtime", "advice", "backend"},
    "testing": {"runtime", "parallel", "monitor", "backend"},
    "parallel": {"runtime", "monitor", "backend"},
    "lightning": {"runtime", "backend"},
    "huggingface": {"runtime", "backend"},
    "runtime": {"monitor", "backend"},
    "server": {"monitor"},
    "health": {"monitor", "backend"},
    "monitor": {"backend", "simulator.cards"},
    "backend": {"simulator"},
    "simulator": set(),
}
BELOW_ALL = {
    *("units", "errors", "extras", "private_folder", "requirements"),
    *("sessions", "program_name", "__version__", "child_python", "plain_text", "notebook"),
}


def folders(heading: str) -> list[str]:
    """Folders in the order of the table in the document whose first column has that heading."""
    text = (PROJECT / "docs" / "architecture.md").read_text()
    table = text[text.index(f"| {heading} |") :].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE)


def imported(source: Path) -> Iterator[str]:
    """Full names of what a Python file imports, at its top and within its functions."""
    package = list(source.relative_to(PROJECT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def included(source: Path) -> list[str]:
    return re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE)


def test_the_document_names_every_folder():
    for heading, place in [("folder of `runtime/`", RUNTIME), ("folder", NATIVE)]:
        there = {path.name for path in place.iterdir() if path.is_dir()} - {"__pycache__"}
        assert set(folders(heading)) == there


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_lies_below_it(part):
    place = PACKAGE / part
    sources = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    allowed = PARTS[part] | BELOW_ALL | {part}
    upwards = [
        (str(source.relative_to(PROJECT)), name)
        for source in sources
        for name in imported(source)
        if name.startswith("hpu_magic.")
        and not any(f"{name}.".startswith(f"hpu_magic.{each}.") for each in allowed)
    ]
    assert upwards == []


def test_folders_of_runtime_import_only_those_before_them():
    order = folders("folder of `runtime/`")
    upwards = [
        (str(source.relative_to(RUNTIME)), name)
        for rank, folder in enumerate(order)
        for source in (RUNTIME / folder).rglob("*.py")
        for name in imported(source)
        if name.startswith("hpu_magic.runtime.") and name.split(".")[2] not in order[: rank + 1]
    ]
    assert upwards == []


def test_folders_of_the_engine_include_only_those_before_them():
    order = folders("folder")
    upwards = [
        (str(source.relative_to(NATIVE)), header)
        for rank, folder in enumerate(order)
        for source in (NATIVE / folder).rglob("*.[ch]*")
        for header in included(source)
        if header.split("/")[0] not in order[: rank + 1]
    ]
    assert upwards == []
