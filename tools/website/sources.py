"""Collect the sources of the site: the pages under docs/, and the generated ones."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat

from website import (
    api,
    architecture,
    commands,
    estimates,
    gallery,
    libraries,
    links,
    notebooks,
    vendor_names,
)


def assemble(project: Path, into: Path, caches: Path | None) -> None:
    """Delete the folder of the site's sources, and write it again.

    Parameters
    ----------
    project : Path
        The folder that holds ``docs``, ``notebooks`` and ``hpu_magic``.
    into : Path
        The folder that Sphinx reads.
    caches : Path, optional
        The folder with the caches of executed notebooks and of estimates; without it, the site
        shows notebooks without outputs, and measurements without estimates.
    """
    files = sorted((project / "notebooks").glob("*.ipynb"))
    if caches is None:
        shown = {path.stem: nbformat.read(path, as_version=4) for path in files}
        figures = None
    else:
        environment = notebooks.environment_of(project / "hpu_magic")
        with ThreadPoolExecutor(1) as pool:
            estimated = pool.submit(estimates.calculated, caches / "site_estimates", environment)
            shown = notebooks.executed(files, environment, caches / "site_notebooks")
            figures = estimated.result()
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(project / "docs", into, ignore=shutil.ignore_patterns("__pycache__"))
    gallery.write(shown, into / "notebooks")
    commands.write(into / "reference")
    api.write(into / "reference")
    for page in into.rglob("*.md"):
        origin = project / "docs" / page.relative_to(into)
        if origin.exists():
            page.write_text(_page(origin, page, project, into))
    tables = {
        "estimates.md": estimates.tables(figures),
        "huggingface.md": libraries.huggingface(),
        "lightning_habana.md": libraries.lightning_habana(),
        "vendor_api.md": vendor_names.tables(),
    }
    for name, text in tables.items():
        with (into / name).open("a", encoding="utf-8") as page:
            page.write("\n" + text)
    drawing = into / "architecture.md"
    drawing.write_text(architecture.with_picture(drawing.read_text()))
    for name, called in links.ROOT_PAGES.items():
        (into / called).write_text(_page(project / name, into / called, project, into))


def _page(origin: Path, page: Path, project: Path, site: Path) -> str:
    return links.on_the_site(origin.read_text(), origin, page, project, site)
