"""All texts of the front end can be translated; the test language puts them in brackets."""

import json
import re
from pathlib import Path

import pytest
from conftest import QUIET_LAB
from holding_notebook import HOLD, HoldingNotebook
from lab_page import (
    LOAD,
    STATUS,
    open_notebook,
    open_sidebar,
    run_all,
    wait_for_text,
    wait_until,
)

pytestmark = pytest.mark.browser

SOURCES = Path(__file__).parents[2] / "labextension" / "src"
LOCALE = "xx_XX"
STRING = r"'(?:[^'\\]|\\.)*'"
# A call with its literal strings; tools for language packs join several strings.
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
# Names, numbers and units are the same in every language. The browser translates the day at which a
# chart shows midnight.
SAME = re.compile(
    r"HPU( \d+)?|Gaudi2|fit\.ipynb|words\.ipynb|DigitReader|loss|eager|lazy|root|[AP]M"
    r"|\d+ (Sun|Mon|Tue|Wed|Thu|Fri|Sat)"
    r"|\b([KMGT]i)?B\b"
)
# Texts that JupyterLab adds to each tab.
LABS_OWN = {"More commands", "main area content"}
COLLECT = """
roots => roots.flatMap(root => [root, ...root.querySelectorAll('*')].flatMap(node => [
  ...[...node.childNodes].filter(one => one.nodeType === Node.TEXT_NODE).map(one => one.data),
  ...['aria-label', 'title', 'aria-valuetext'].map(name => node.getAttribute(name) ?? '')
]))
"""


def words(call):
    """Return the text of joined literal strings."""
    parts = re.findall(STRING, call)
    return "".join(re.sub(r"\\(.)", r"\1", part[1:-1]) for part in parts)


def catalog():
    """Return a translation of each text in the sources."""
    found = {}
    for file in SOURCES.rglob("*.ts"):
        for kind, call, second in CALL.findall(file.read_text()):
            forms = [call, second] if kind == "_n" else [call]
            found[words(call)] = [f"⟦{words(form)}⟧" for form in forms]
    return found


def untranslated(texts):
    """Return the texts with letters outside of brackets, except for names and units."""
    found = []
    for text in texts:
        rest = text
        while (inner := re.sub(r"⟦[^⟦⟧]*⟧", "", rest)) != rest:
            rest = inner
        if re.search(r"[A-Za-z]{2,}", SAME.sub("", rest)):
            found.append(text)
    return found


def check(page, selector, *expected):
    """Check that all texts below `selector` are from the catalog and include `expected`."""
    nodes = page.locator(selector)
    assert nodes.count() > 0, selector
    texts = [text for text in nodes.evaluate_all(COLLECT) if text not in LABS_OWN]
    assert untranslated(texts) == []
    for text in expected:
        assert any(text in each for each in texts), (text, texts)


@pytest.fixture(scope="module")
def lab(tmp_path_factory, forking_lab):
    """A JupyterLab in the test language, with a fit on one card."""
    settings = {**QUIET_LAB, "@jupyterlab/translation-extension:plugin": {"locale": LOCALE}}
    with forking_lab(tmp_path_factory.mktemp("translation"), settings) as running:
        work = HoldingNotebook(running, "fit.ipynb", FIT)
        yield running
        work.close()


@pytest.fixture
def page(page):
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


def test_catalog_contains_plurals_and_joined_strings():
    found = catalog()
    assert found["%1 %2 card"] == ["⟦%1 %2 card⟧", "⟦%1 %2 cards⟧"]
    assert any(text.startswith("All of its variables will be lost, ") for text in found)
    assert len(found) > 100


def test_card_views_are_translated(page, lab):
    open_sidebar(page, lab)
    page.locator(".hpu-Fit").first.wait_for()
    check(page, ".hpu-Cards", "⟦8 Gaudi2 cards⟧", "⟦1 in use⟧", "⟦epoch 1 of 10⟧", "⟦Validating⟧")

    page.get_by_role("button", name=re.compile("Shut down")).click()
    page.locator(".jp-Dialog-content").wait_for()
    check(page, ".jp-Dialog-content", "⟦Shut down ⟦the kernel of fit.ipynb⟧?⟧", "⟦Shut Down⟧")
    page.keyboard.press("Escape")

    page.locator(".hpu-Card-title").first.click()
    page.locator(".hpu-Chart-plot canvas").first.wait_for()
    check(page, ".hpu-CardCharts, .hpu-CardTab jp-button", "⟦Memory⟧", "⟦Pause⟧")

    page.get_by_role("button", name="⟦Open the overview of all cards⟧").click()
    page.locator(".hpu-Past-bar").first.wait_for()
    check(page, ".hpu-Past, .hpu-PastTab jp-button", "⟦24 h⟧", "⟦Reset zoom⟧")
    # Only tabs of hpu_magic: JupyterLab translates its own tabs, such as the Launcher.
    page.keyboard.press("Control+Shift+L")
    page.locator(".jp-Launcher:visible").wait_for()
    check(page, "[data-id^='hpu_magic-'] .lm-TabBar-tabLabel", "⟦HPU overview⟧", "HPU 0")

    page.get_by_role("menuitem", name="View", exact=True).click()
    wait_for_text(page, ".lm-Menu-itemLabel", "⟦Show HPU Cards⟧")


def test_notebook_controls_are_translated(page, lab):
    open_notebook(page, lab, "words.ipynb", LOAD)
    run_all(page)
    page.locator(STATUS).wait_for()
    title = page.locator(STATUS)
    wait_until(page, lambda: "⟦" in str(title.get_attribute("title")), "the words")
    check(page, ".hpu-StatusItem", "⟦Click to show all cards⟧")
    check(page, ".hpu-ModeSwitch", "⟦Execution mode of the HPU⟧")
