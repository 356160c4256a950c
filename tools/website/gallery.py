"""Gallery of the notebooks, with a card for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat

from website.thumbnails import thumbnail

# Maps each group to its notebooks, and each notebook to the ID of the cell whose output is its
# thumbnail.
GALLERY: dict[str, dict[str, str]] = {
    "Start": {"quickstart": "fit", "execution_modes": "compare"},
    "Train": {
        "plain_loop": "epochs",
        "lightning_features": "precision",
        "fine_tune": "fit",
        "multi_card": "ddp",
        "object_detection": "found",
    },
    "Speed": {
        "hpu_graphs": "capture",
        "generate": "both",
        "mixed_precision": "explain",
        "fp8": "quantize",
    },
    "Serve": {"serve": "state"},
    "Before you have a card": {
        "porting_from_cuda": "port",
        "before_the_card": "full",
        "dry_run": "fits",
    },
}

_HEAD = """\
# Notebooks

These notebooks were executed on the simulator when this page was built. They run unchanged on a
card. They are in the project's `notebooks/` folder, and `make lab` opens the first one.
"""
# Messages that other libraries print on import.
_OTHERS = re.compile(r"torchao|register_constant|auto_accelerator")


def write(notebooks: Mapping[str, Any], into: Path) -> None:
    """Write the gallery page, its pictures and the notebooks.

    Parameters
    ----------
    notebooks : mapping of str to NotebookNode
        The notebooks by name, with or without outputs.
    into : Path
        The folder ``notebooks`` of the site.

    Raises
    ------
    ValueError
        The gallery lacks a notebook, or lists one that does not exist.
    """
    listed = [name for group in GALLERY.values() for name in group]
    if set(listed) != notebooks.keys():
        different = ", ".join(sorted(set(listed) ^ notebooks.keys()))
        raise ValueError(
            f"The gallery and the folder of notebooks differ in {different}: fix GALLERY."
        )
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
    parts.append("```{toctree}\n:hidden:\n\n" + "\n".join(listed) + "\n```\n")
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
    """Remove other libraries' messages, and convert charts to HTML that uses the page's colors."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                data["text/html"] = data.pop("image/svg+xml")
            if output.get("name") == "stderr":
                lines = output.text.splitlines(keepends=True)
                output.text = "".join(line for line in lines if not _OTHERS.search(line))
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("text") != ""]
    return notebook
