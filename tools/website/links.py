"""Convert the links of a page in the project to links on the site."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

# Pages in the root folder of the project, with their names on the site.
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_FRONT = {"README.md": "index.md"}
_CODE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1`*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<path>[^)\s#:]+)(?P<place>#[^)\s]*)?\)")


def on_the_site(text: str, origin: Path, page: Path, project: Path, site: Path) -> str:
    """Return a page's text with links that are valid on the site.

    Files of the project that are not pages are copied to the site, for download. Links without a
    target remain unchanged, and Sphinx warns about them. ``origin`` and ``page`` are the page's
    paths in the project and in the site's sources.
    """

    def converted(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(origin.parent / link["path"]))
        on_site = _place(target, project, site)
        if on_site is None:
            return link[0]
        return f"]({os.path.relpath(on_site, page.parent)}{link['place'] or ''})"

    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(converted, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(converted, text[end:])])


def _place(target: Path, project: Path, site: Path) -> Path | None:
    """Return the path on the site for a file of the project."""
    if not target.is_file() or not target.is_relative_to(project):
        return None
    inside = target.relative_to(project)
    name = str(inside)
    if name in ROOT_PAGES or name in _FRONT:
        return site / (ROOT_PAGES | _FRONT)[name]
    if inside.parts[0] == "docs":
        return site / target.relative_to(project / "docs")
    if inside.parts[0] == "notebooks":
        return site / inside
    copied = site / "files" / inside
    copied.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(target, copied)
    return copied
