"""The gallery: which notebooks there are for what, a card each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from website.thumbnails import thumbnail

# Group -> notebook -> the cell whose output is its picture.
GALLERY: dict[str, dict[str, str]] = {
    "Begin": {"quickstart": "fit", "execution_modes": "compare"},
    "Train": {
        "plain_loop": "epochs",
        "lightning_features": "precision",
        "fine_tune": "fit",
        "multi_card": "ddp",
        "object_detection": "found",
    },
    "Make it fast": {
        "hpu_graphs": "capture",
        "generate": "both",
        "mixed_precision": "explain",
        "fp8": "quantize",
    },
    "Come over, look ahead": {"porting_from_cuda": "port", "before_the_card": "full"},
}

_HEAD = """\
# Notebooks

Each was executed on the simulator when this page was built, and runs unchanged on a card. They are
in the project's folder `notebooks/`; `make lab` opens the first.
"""
# What other libraries say of themselves when they are imported.
_OTHERS = re.compile(r"torchao|register_constant|auto_accelerator")


def write(notebooks: Mapping[str, Any], into: Path) -> None:
    """Write the gallery's page, its pictures and the notebooks.

    Parameters
    ----------
    notebooks : mapping of str to NotebookNode
        The notebooks by name, with outputs if there are any.
    into : Path
        The folder that becomes the site's ``notebooks``.

    Raises
    ------
    ValueError
        A notebook has no place in the gallery, or a place has no notebook.
    """
    placed = {name: cell for group in GALLERY.values() for name, cell in group.items()}
    if placed.keys() != notebooks.keys():
        odd = ", ".join(sorted(placed.keys() ^ notebooks.keys()))
        raise ValueError(f"The gallery and the folder of notebooks differ in {odd}: mend GALLERY.")
    pictures = into / "pictures"
    pictures.mkdir(parents=True)
    parts = [_HEAD]
    for group, names in GALLERY.items():
        cards = []
        for name, cell in names.items():
            suffix, picture = thumbnail(notebooks[name], cell)
            (pictures / f"{name}{suffix}").write_bytes(picture)
            nbformat.write(_clean(notebooks[name]), into / f"{name}.ipynb")
            cards.append(_card(name, notebooks[name], f"pictures/{name}{suffix}"))
        grid = "::::{grid} 1 2 2 3\n:gutter: 3\n\n" + "\n".join(cards) + "::::\n"
        parts.append(f"## {group}\n\n{grid}")
    parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(placed) + "\n```\n")
    (into / "index.md").write_text("\n".join(parts))


def title(notebook: Any) -> str:
    """Return a notebook's heading."""
    return str(notebook.cells[0].source.partition("\n")[0].removeprefix("# "))


def _card(name: str, notebook: Any, picture: str) -> str:
    about = notebook.cells[0].source.partition("\n\n")[2].splitlines()[0]
    return (
        f":::{{grid-item-card}} {title(notebook)}\n:img-top: {picture}\n:img-alt:\n"
        f":link: {name}\n:link-type: doc\n:class-item: notebook\n\n{about}\n:::\n"
    )


def _clean(notebook: Any) -> Any:
    """Take out of the outputs what other libraries log about the machine.

    Charts become part of the page, whose colours they take then.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                data["text/html"] = data.pop("image/svg+xml")
            if output.get("name") == "stderr":
                lines = output.text.splitlines(keepends=True)
                output.text = "".join(line for line in lines if not _OTHERS.search(line))
        if "outputs" in cell:
            cell.outputs = [one for one in cell.outputs if one.get("text") != ""]
    return notebook
