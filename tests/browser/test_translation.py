"""Every word of the front end can be translated: shown here with a language that brackets them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import QUIET_LAB, Lab, run_lab
from holding_notebook import HOLD, HoldingNotebook
from lab_page import LOAD, OPEN_SIDEBAR, STATUS, open_notebook, run_all, wait_for_text, wait_until

pytestmark = pytest.mark.browser

SOURCES = Path(__file__).parents[2] / "labextension" / "src"
LOCALE = "xx_XX"
STRING = r"'(?:[^'\\]|\\.)*'"
# A call with its literal strings, of which the tools for language packs know how to put several
# together.
CALL = re.compile(
    rf"trans\s*\.(__|_n)\(\s*({STRING}(?:\s*\+\s*{STRING})*)(?:,\s*({STRING}))?", re.DOTALL
)
FIT = f"""{HOLD}
import time
from hpu_magic import sessions
sessions.PublishedFit(lambda: None).update(
    sessions.Fit(
        model="DigitReader", began=time.time(), phase="validating", epoch=1, epochs=10, batch=3,
        batches=100, step=300, share=0.1, remaining=600.0, rate=100.0, loss=0.25,
    )
)
"""
# Names, numbers and units are the same in every language.
SAME = re.compile(
    r"HPU( \d+)?|Gaudi2|fit\.ipynb|words\.ipynb|DigitReader|loss|eager|lazy|root|[AP]M"
    r"|\b([KMGT]i)?B\b"
)
# What JupyterLab adds to any tab, in words of its own domain.
LABS_OWN = {"More commands", "main area content"}
COLLECT = """
roots => roots.flatMap(root => [root, ...root.querySelectorAll('*')].flatMap(node => [
  ...[...node.childNodes].filter(one => one.nodeType === Node.TEXT_NODE).map(one => one.data),
  ...['aria-label', 'title', 'aria-valuetext'].map(name => node.getAttribute(name) ?? '')
]))
"""


def words(call: str) -> str:
    """Return the text of literal strings that are put together."""
    parts = re.findall(STRING, call)
    return "".join(re.sub(r"\\(.)", r"\1", part[1:-1]) for part in parts)


def catalog() -> dict[str, list[str]]:
    """Return a translation of every text in the sources, found as tools for language packs do."""
    found = {}
    for file in SOURCES.rglob("*.ts"):
        for kind, call, second in CALL.findall(file.read_text()):
            forms = [call, second] if kind == "_n" else [call]
            found[words(call)] = [f"⟦{words(form)}⟧" for form in forms]
    return found


def untranslated(texts: list[str]) -> list[str]:
    """Return the texts with letters outside of brackets that are no names or units."""
    found = []
    for text in texts:
        rest = text
        while (inner := re.sub(r"⟦[^⟦⟧]*⟧", "", rest)) != rest:
            rest = inner
        if re.search(r"[A-Za-z]{2,}", SAME.sub("", rest)):
            found.append(text)
    return found


def check(page: Any, selector: str, *expected: str) -> None:
    """See that all words below `selector` come from the catalog, `expected` among them."""
    nodes = page.locator(selector)
    assert nodes.count() > 0, selector
    texts = [text for text in nodes.evaluate_all(COLLECT) if text not in LABS_OWN]
    assert untranslated(texts) == []
    for text in expected:
        assert any(text in one for one in texts), (text, texts)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab in a language of which only these words are known, with a fit on one card."""
    settings = {**QUIET_LAB, "@jupyterlab/translation-extension:plugin": {"locale": LOCALE}}
    with run_lab(tmp_path_factory.mktemp("translation"), settings) as lab:
        work = HoldingNotebook(lab, "fit.ipynb", FIT)
        yield lab
        work.close()


@pytest.fixture
def foreign_page(page: Any) -> Any:
    head = {
        "domain": "hpu_magic",
        "language": "xx-XX",
        "plural_forms": "nplurals=2; plural=(n != 1);",
    }
    answer = json.dumps({"data": {"hpu_magic": {"": head, **catalog()}}, "message": ""})
    page.route(
        f"**/lab/api/translations/{LOCALE}*",
        lambda route: route.fulfill(content_type="application/json", body=answer),
    )
    return page


def test_catalog_holds_plurals_and_texts_of_several_lines() -> None:
    found = catalog()
    assert found["%1 %2 card"] == ["⟦%1 %2 card⟧", "⟦%1 %2 cards⟧"]
    assert any(text.startswith("All of its variables will be lost, ") for text in found)
    assert len(found) > 100


def test_views_of_cards_are_translated(foreign_page: Any, foreign: Lab) -> None:
    page = foreign_page
    page.goto(f"{foreign.url}/lab/workspaces/words?token={foreign.token}")
    page.locator(OPEN_SIDEBAR).click(timeout=60_000)
    page.locator(".hpu-Fit").first.wait_for(timeout=60_000)
    check(page, ".hpu-Cards", "⟦8 Gaudi2 cards⟧", "⟦1 in use⟧", "⟦epoch 1 of 10⟧", "⟦Validating⟧")

    page.get_by_role("button", name=re.compile("Shut down")).click()
    page.locator(".jp-Dialog-content").wait_for()
    check(page, ".jp-Dialog-content", "⟦Shut down ⟦the kernel of fit.ipynb⟧?⟧", "⟦Shut Down⟧")
    page.keyboard.press("Escape")

    page.locator(".hpu-Card-title").first.click()
    page.locator(".hpu-Chart-plot canvas").first.wait_for(timeout=60_000)
    check(page, ".hpu-CardCharts, .hpu-CardTab jp-button", "⟦Memory⟧", "⟦Pause⟧")

    page.get_by_role("button", name="⟦Open the overview of all cards⟧").click()
    page.locator(".hpu-Past-bar").first.wait_for(timeout=60_000)
    check(page, ".hpu-Past, .hpu-PastTab jp-button", "⟦24 h⟧", "⟦Reset zoom⟧")
    # Only our own tabs: JupyterLab's, such as its Launcher, have words of JupyterLab's domain.
    page.keyboard.press("Control+Shift+L")
    page.locator(".jp-Launcher:visible").wait_for(timeout=60_000)
    check(page, "[data-id^='hpu_magic-'] .lm-TabBar-tabLabel", "⟦HPU overview⟧", "HPU 0")

    page.get_by_role("menuitem", name="View", exact=True).click()
    wait_for_text(page, ".lm-Menu-itemLabel", "⟦Show HPU Cards⟧")
    assert page.problems == []


def test_controls_of_a_notebook_are_translated(foreign_page: Any, foreign: Lab) -> None:
    page = foreign_page
    open_notebook(page, foreign, "words.ipynb", LOAD)
    run_all(page)
    page.locator(STATUS).wait_for(timeout=60_000)
    title = page.locator(STATUS)
    wait_until(page, lambda: "⟦" in str(title.get_attribute("title")), 60, "the words")
    check(page, ".hpu-StatusItem", "⟦Click to show all cards⟧")
    check(page, ".hpu-ModeSwitch", "⟦Execution mode of the HPU⟧")
    assert page.problems == []
