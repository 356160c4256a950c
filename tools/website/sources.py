"""Collect the sources of the site: the pages under docs/, and the generated ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat

from website import api, architecture, commands, gallery, links, notebooks, vendor_names


def assemble(project: Path, into: Path, executions: Path | None) -> None:
    """Replace the folder of the site's sources.

    Parameters
    ----------
    project : Path
        The folder that holds ``docs``, ``notebooks`` and ``hpu_magic``.
    into : Path
        The folder that Sphinx reads.
    executions : Path, optional
        The folder of executed notebooks; without it, the site shows them without outputs.
    """
    files = sorted((project / "notebooks").glob("*.ipynb"))
    if executions is None:
        shown = {path.stem: nbformat.read(path, as_version=4) for path in files}
    else:
        shown = notebooks.executed(files, project / "hpu_magic", executions)
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(project / "docs", into, ignore=shutil.ignore_patterns("__pycache__"))
    gallery.write(shown, into / "notebooks")
    commands.write(into / "reference")
    api.write(into / "reference")
    for page in into.rglob("*.md"):
        origin = project / "docs" / page.relative_to(into)
        if origin.exists():
            page.write_text(_page(origin, page, project, into))
    with (into / "vendor_api.md").open("a", encoding="utf-8") as page:
        page.write("\n" + vendor_names.tables())
    drawing = into / "architecture.md"
    drawing.write_text(architecture.with_picture(drawing.read_text()))
    for name, called in links.ROOT_PAGES.items():
        (into / called).write_text(_page(project / name, into / called, project, into))


def _page(origin: Path, page: Path, project: Path, site: Path) -> str:
    return links.on_the_site(origin.read_text(), origin, page, project, site)
