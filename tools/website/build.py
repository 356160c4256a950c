"""The site from its sources, in two steps: they are put together in one folder, and Sphinx runs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from website.sources import assemble

# Afresh, so that all warnings are seen; two processes read and write.
_OPTIONS = ("-W", "--keep-going", "-E", "-q", "-j", "2", "-b", "html")
_LINKS = ("-E", "-q", "-b", "linkcheck")


def build(project: Path, into: Path, *, executed: bool = True, links: bool = False) -> int:
    """Build the site of `project` into ``into/site`` and return Sphinx's exit status.

    Parameters
    ----------
    project : Path
        The folder that holds ``docs`` and ``notebooks``.
    into : Path
        Gets ``site`` and what it is built from, ``site_sources``.
    executed : bool
        Whether the gallery shows the notebooks' outputs.
    links : bool
        Ask for the pages elsewhere that it leads to, which needs a network, and build nothing.
    """
    from sphinx.cmd.build import main as sphinx

    started = time.monotonic()
    sources = into / "site_sources"
    assemble(project, sources, into / "site_notebooks" if executed else None)
    prepared = time.monotonic()
    doctrees = ["-d", str(into / "site_doctrees")]
    if links:
        asked = into / "site_links"
        status = sphinx([*_LINKS, *doctrees, str(sources), str(asked)])
        print((asked / "output.txt").read_text() or "all links lead somewhere", end="")
        return int(status)
    shutil.rmtree(into / "site", ignore_errors=True)  # no page that has gone stays
    status = sphinx([*_OPTIONS, *doctrees, str(sources), str(into / "site")])
    print(
        f"{into / 'site' / 'index.html'}: sources {prepared - started:.0f} s, "
        f"pages {time.monotonic() - prepared:.0f} s"
    )
    return int(status)
