"""Record the panel of a fit in JupyterLab for the first page of the documentation.

``python tools/record_panel.py`` runs the quickstart's fit in JupyterLab and headless Chromium, in
the light and the dark theme. The script writes the animation ``docs/images/fit-THEME.webp`` and its
last frame ``docs/images/fit-THEME.png``. The script has the same requirements as ``tests/browser``.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import sync_playwright

_ROOT = Path(__file__).parents[1]
_IMAGES = _ROOT / "docs" / "images"
sys.path[:0] = [str(_ROOT / "tests" / "browser"), str(_ROOT / "tests")]

from conftest import CHROMIUM_FLAGS, CHROMIUM_NAMES, run_lab  # noqa: E402 - by the path above
from lab_page import choose_theme, open_notebook, run_all  # noqa: E402

_THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_VIEWPORT = {"width": 1000, "height": 900}
_SCALE = 1.5
_BETWEEN = 0.2  # seconds between two frames in the recording and in the animation
_LAST = 3.0  # seconds that the last frame is shown


def main() -> None:
    """Record both themes."""
    chromium = next(filter(None, map(shutil.which, CHROMIUM_NAMES)))
    with (
        tempfile.TemporaryDirectory() as folder,
        run_lab(Path(folder)) as lab,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        for name, theme in _THEMES.items():
            page = browser.new_page(viewport=_VIEWPORT, device_scale_factor=_SCALE)
            page.set_default_timeout(60_000)
            _save(name, _record(page, lab, f"{name}.ipynb", theme))
            page.close()
        browser.close()


def _cells() -> list[str]:
    """Return two cells: the quickstart before its fit, and the fit."""
    notebook = nbformat.read(_ROOT / "notebooks" / "quickstart.ipynb", as_version=4)
    cells = {cell.id: cell.source for cell in notebook.cells if cell.cell_type == "code"}
    # Train for twice as many epochs, for a longer animation.
    magic, *lines = cells["fit"].replace("max_epochs=20", "max_epochs=40").splitlines()
    before = "\n".join([cells["load"], cells["data"], cells["model"], *lines[:-1]])
    return [before, f"{magic}\n{lines[-1]}"]


def _record(page: Any, lab: Any, path: str, theme: str) -> list[Image.Image]:
    """Run the notebook and return the frames of the fit's cell."""
    open_notebook(page, lab, path, *_cells())
    choose_theme(page, theme)
    page.add_style_tag(content=".jp-cell-toolbar, .jp-Toolbar { visibility: hidden }")
    page.keyboard.press("Control+b")  # hides the file browser
    page.wait_for_timeout(500)
    run_all(page)
    cell = page.locator(".jp-CodeCell").nth(1)
    cell.locator(".hpu-magic-live").wait_for()
    cell.scroll_into_view_if_needed()
    frames = []
    while True:
        began = time.monotonic()
        frames.append(Image.open(io.BytesIO(cell.screenshot())).convert("RGB"))
        if "Fit finished" in cell.inner_text():
            return frames
        page.wait_for_timeout(max(0, 1000 * (began + _BETWEEN - time.monotonic())))


def _save(name: str, frames: list[Image.Image]) -> None:
    """Write the animation and its last frame, using the most common frame size."""
    sizes = [frame.size for frame in frames[:-1]]
    size = max(set(sizes), key=sizes.count)
    alike = [frame for frame in frames if frame.size == size]
    milliseconds = [round(1000 * _BETWEEN)] * (len(alike) - 1) + [round(1000 * _LAST)]
    alike[0].save(
        _IMAGES / f"fit-{name}.webp",
        save_all=True,
        append_images=alike[1:],
        duration=milliseconds,
        loop=0,
        quality=70,
        method=6,
    )
    alike[-1].save(_IMAGES / f"fit-{name}.png", optimize=True)
    print(f"fit-{name}: {len(frames)} frames, {len(alike)} of {size[0]} x {size[1]}")


if __name__ == "__main__":
    main()
