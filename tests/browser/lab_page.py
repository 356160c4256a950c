"""User actions on a JupyterLab page, and functions that read the page."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

LOAD = "%load_ext hpu_magic\nimport torch"
STATUS = ".hpu-StatusItem button"
SWITCH = ".jp-NotebookPanel:not(.lm-mod-hidden) .hpu-ModeSwitch select"
DIALOG = ".jp-Dialog"
OPEN_SIDEBAR = ".jp-SideBar [data-id='hpu_magic-sidebar']"
PATIENCE = 240  # seconds that an action may take on a busy machine


def wait_until(page: Any, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE} s"
        page.wait_for_timeout(100)


# Whether a notebook is in front and connected to an idle kernel. Before that, running a cell opens
# the kernel dialog.
_READY = """
path => {
  const shown = window.jupyterapp?.shell.currentWidget;
  const context = shown?.sessionContext;
  return shown?.context?.path === path && shown.context.isReady && context?.isReady
    && context.session?.kernel?.status === 'idle';
}
"""
# Shuts down the kernels of all notebooks, and closes all tabs without saving.
_CLOSE = """
async () => {
  if (!window.jupyterapp) {
    return;
  }
  const { commands, shell } = window.jupyterapp;
  for (const tab of [...shell.widgets('main')]) {
    await tab.sessionContext?.shutdown();
    tab.dispose();
  }
  if (document.body.dataset.jpThemeName !== 'JupyterLab Light') {
    await commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' });
  }
}
"""


def is_loaded(page: Any, lab: Any) -> bool:
    """Return whether a page shows JupyterLab, in any workspace of a server."""
    return str(page.url).startswith(f"{lab.url}/lab")


def open_sidebar(page: Any, lab: Any) -> None:
    """Open the sidebar on a page that may not have been loaded."""
    if not is_loaded(page, lab):
        page.goto(f"{lab.url}/lab/workspaces/cards?token={lab.token}")
    page.locator(OPEN_SIDEBAR).wait_for()
    if not page.locator(".hpu-Cards").is_visible():
        page.locator(OPEN_SIDEBAR).click()


def close_everything(page: Any) -> None:
    """Bring a page of JupyterLab to the state of a new workspace, and end its notebooks."""
    page.keyboard.press("Escape")  # closes an open menu
    page.evaluate(_CLOSE)
    if page.locator(".hpu-Cards").is_visible():
        page.locator(OPEN_SIDEBAR).click()
    page.set_viewport_size({"width": 1280, "height": 1000})


def open_notebook(
    page: Any, lab: Any, name: str, *cells: str, workspace: str | None = None
) -> None:
    """Open a new notebook, next to other notebooks on the page."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source.strip()) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
    )
    nbformat.write(notebook, lab.folder / name)
    show_notebook(page, lab, name, workspace)
    page.wait_for_function(_READY, arg=name, polling=100)
    shown_notebook(page).locator(".jp-Cell").first.wait_for()


def show_notebook(page: Any, lab: Any, name: str, workspace: str | None = None) -> None:
    """Show a notebook on the page, which is loaded only if it does not show JupyterLab."""
    if is_loaded(page, lab):
        opened = "async path => { await jupyterapp.commands.execute('docmanager:open', { path }) }"
        page.evaluate(opened, name)
    else:
        page.goto(lab.address(name, workspace))


def run_all(page: Any) -> None:
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()


def run_notebook(page: Any, lab: Any, name: str, *cells: str, **options: Any) -> None:
    """Open a new notebook and run its cells."""
    open_notebook(page, lab, name, *cells, **options)
    run_all(page)


def restart(page: Any) -> None:
    """Confirm a restart, and wait until the page is connected to the new process.

    JupyterLab discards the requests of cells that run earlier.
    """
    with page.expect_websocket(lambda socket: "/channels" in socket.url):
        press(page, "Restart")
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()


def choose_theme(page: Any, name: str) -> None:
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.get_by_text("Theme", exact=True).hover()
    page.get_by_text(name, exact=True).click()
    page.wait_for_selector(f"body[data-jp-theme-name='{name}']", state="attached")
    page.wait_for_timeout(500)


def shown_notebook(page: Any) -> Any:
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")


def output(page: Any, cell: int) -> str:
    """Return the text of a cell's outputs in the visible notebook."""
    area = shown_notebook(page).locator(".jp-CodeCell").nth(cell).locator(".jp-OutputArea")
    return str(area.inner_text())


def wait_for_output(page: Any, cell: int, text: str) -> None:
    wait_until(page, lambda: text in output(page, cell), f"{text!r} below cell {cell}")


def wait_for_text(page: Any, selector: str, text: str) -> None:
    found = page.locator(selector).filter(has_text=text)
    wait_until(page, lambda: found.count() > 0, f"{text!r} in {selector}")


def press(page: Any, button: str) -> None:
    page.locator(DIALOG).get_by_role("button", name=button).click()


def busy_prompt(page: Any, cell: int) -> bool:
    prompt = page.locator(".jp-Notebook .jp-CodeCell").nth(cell).locator(".jp-InputPrompt")
    return "[*]" in prompt.inner_text()


def screenshots(folder: Path) -> Path:
    """Return the folder for screenshots: HPU_MAGIC_SCREENSHOTS or `folder`."""
    chosen = Path(os.environ.get("HPU_MAGIC_SCREENSHOTS") or folder)
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


def keep_screenshot(page: Any, panel: Any, name: str, folder: Path) -> None:
    panel.scroll_into_view_if_needed()
    panel.screenshot(path=screenshots(folder) / name)


def offered_by_tab(page: Any, cell: int, typed: str) -> set[str]:
    """Type at the end of a cell, press Tab and return the completions.

    The result excludes words from the cell, which JupyterLab adds to the kernel's completions.
    """
    editor = page.locator(".jp-Notebook .jp-CodeCell").nth(cell).locator(".cm-content")
    editor.click()
    page.keyboard.press("End")
    own_words = set(re.findall(r"\w+|%+", editor.inner_text()))
    page.keyboard.type(typed)
    page.keyboard.press("Tab")
    page.wait_for_selector(".jp-Completer-item")
    return set(page.locator(".jp-Completer-match").all_inner_texts()) - own_words


# The contrast of each text with its background, as defined by WCAG 2, including transparency.
_CONTRAST = """
roots => {
  const parse = text => {
    const [r, g, b, a = 1] = (text.match(/[0-9.]+/g) ?? [0, 0, 0, 0]).map(Number);
    const scale = text.startsWith('color(srgb') ? 255 : 1;
    return [scale * r, scale * g, scale * b, a];
  };
  const over = ([r, g, b, a], below) => [
    ...[r, g, b].map((value, at) => a * value + (1 - a) * below[at]), 1
  ];
  const luminance = color => {
    const [r, g, b] = color.map(value => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const above = node => node.parentElement ?? node.getRootNode().host; // host of a shadow root
  const background = node => {
    const layers = [];
    for (let at = node; at; at = above(at)) {
      layers.unshift(parse(getComputedStyle(at).backgroundColor));
    }
    return layers.reduce((below, color) => over(color, below), [255, 255, 255, 1]);
  };
  const opacity = node => {
    let share = 1;
    for (let at = node; at; at = above(at)) {
      share *= Number(getComputedStyle(at).opacity);
    }
    return share;
  };
  const found = [];
  for (const root of roots) {
    for (const node of [root, ...root.querySelectorAll('*')]) {
      const text = [...node.childNodes]
        .filter(child => child.nodeType === Node.TEXT_NODE)
        .map(child => child.data.trim())
        .join(' ')
        .trim();
      if (text === '' || node.getClientRects().length === 0) {
        continue;
      }
      const style = getComputedStyle(node);
      const behind = background(node);
      const color = parse(node.namespaceURI.endsWith('/svg') ? style.fill : style.color);
      color[3] *= opacity(node) * Number(node.closest('svg') ? style.fillOpacity : 1);
      const pair = [luminance(over(color, behind)), luminance(behind)].sort((a, b) => b - a);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
      if (ratio < (large ? 3 : 4.5)) {
        found.push(`${text} (${ratio.toFixed(2)})`);
      }
    }
  }
  return found;
}
"""


def faint_texts(page: Any, selector: str) -> list[str]:
    """Return the texts inside a selector whose contrast is too low for WCAG level AA."""
    assert page.locator(selector).count() > 0
    return list(page.locator(selector).evaluate_all(_CONTRAST))
