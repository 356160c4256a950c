"""Build the site: collect its sources in one folder, then run Sphinx."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from website.sources import assemble

# Do not use Sphinx's cache, which would hide warnings; use two processes.
_OPTIONS = ("-W", "--keep-going", "-E", "-q", "-j", "2", "-b", "html")
_LINKS = ("-E", "-q", "-b", "linkcheck")


def build(project: Path, into: Path, *, executed: bool = True, links: bool = False) -> int:
    """Build the site of a project into ``into/site`` and return Sphinx's exit status.

    Parameters
    ----------
    project : Path
        The folder that holds ``docs`` and ``notebooks``.
    into : Path
        Will contain ``site`` and its sources, ``site_sources``.
    executed : bool
        Whether to execute the notebooks and to estimate the published measurements.
    links : bool
        Only check external links, which needs a network connection.
    """
    from sphinx.cmd.build import main as sphinx

    started = time.monotonic()
    sources = into / "site_sources"
    assemble(project, sources, into if executed else None)
    prepared = time.monotonic()
    doctrees = ["-d", str(into / "site_doctrees")]
    if links:
        checked = into / "site_links"
        status = sphinx([*_LINKS, *doctrees, str(sources), str(checked)])
        print((checked / "output.txt").read_text() or "All links are valid.\n", end="")
        return int(status)
    shutil.rmtree(into / "site", ignore_errors=True)  # removes pages without a source
    status = sphinx([*_OPTIONS, *doctrees, str(sources), str(into / "site")])
    print(
        f"{into / 'site' / 'index.html'}: sources {prepared - started:.0f} s, "
        f"pages {time.monotonic() - prepared:.0f} s"
    )
    return int(status)
