"""The folder that Sphinx reads: the pages under docs/, and those that are generated."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat

from website import api, commands, gallery, house, links, notebooks

_CONTENTS = re.compile(r"^```\{toctree\}\n.*?^```$", re.MULTILINE | re.DOTALL)


def assemble(project: Path, into: Path, executions: Path | None) -> None:
    """Put the sources of the site together, in place of those that are there.

    Parameters
    ----------
    project : Path
        The folder that holds ``docs``, ``notebooks`` and ``hpu_magic``.
    into : Path
        Where Sphinx will read them.
    executions : Path, optional
        Where executed notebooks are kept; without it they are shown unexecuted.
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
    architecture = into / "architecture.md"
    architecture.write_text(house.with_picture(architecture.read_text()))
    for name, called in links.BESIDE.items():
        (into / called).write_text(_page(project / name, into / called, project, into))


def _page(origin: Path, page: Path, project: Path, site: Path) -> str:
    text = with_what_is_there(origin.read_text(), origin.parent)
    return links.on_the_site(text, origin, page, project, site)


def with_what_is_there(text: str, folder: Path) -> str:
    """Return a page of `folder` without those patterns of its contents that match no page."""
    return _CONTENTS.sub(lambda found: _matching(found[0], folder), text)


def _matching(contents: str, folder: Path) -> str:
    # The page itself is none of those that it lists.
    return "".join(
        line
        for line in contents.splitlines(keepends=True)
        if "*" not in line or any(one.stem != "index" for one in folder.glob(f"{line.strip()}.md"))
    )
