"""Test the built site in Chromium, opened from files by `make check-docs`."""

import functools
import http.server
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

from lab_page import faint_texts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

PROJECT = Path(__file__).parents[2]
SITE = Path(os.environ.get("HPU_MAGIC_SITE") or PROJECT / "build" / "site")
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
WIDTHS = {"phone": 390, "desk": 1280}
SCHEMES = ("light", "dark")
CHECKED_PAGES = (
    "index.html",
    "architecture.html",
    "changelog.html",
    "notebooks/index.html",
    "notebooks/quickstart.html",
    "notebooks/hpu_graphs.html",
    "notebooks/before_the_card.html",
    "notebooks/porting_from_cuda.html",
    "reference/api/estimate.html",
    "reference/magics/hpu_time.html",
    "tour/train.html",
    "vendor_api.html",
)
# Texts of the lists of pages and headings may not be cut off. Contents of the article that are
# wider than the window must be in boxes that scroll.
LISTS = """() => [...document.querySelectorAll(".bd-sidebar-primary, .bd-sidebar-secondary")]
  .filter(one => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1)
  .map(one => one.className)"""
OVERFLOW = """() => [...document.querySelectorAll(".bd-article *")]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
  .filter(one => {
    for (let at = one; at; at = at.parentElement) {
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX) &&
          at.getBoundingClientRect().right <= innerWidth + 1) {
        return false
      }
    }
    return true
  })
  .map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if found is None or not SITE.exists():
        pytest.skip("needs Chromium, and the site that make docs builds")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def visit(browser):
    """Open pages, and check that they only loaded files and reported no errors."""
    contexts, problems = [], []

    def opened(path, width=WIDTHS["desk"], **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(f"{path}: {error}"))
        page.on("console", lambda line: line.type == "error" and problems.append(line.text))
        page.on(
            "request",
            lambda request: (
                request.url.startswith(("file:", "data:"))
                or problems.append(f"{path} requests {request.url}")
            ),
        )
        page.goto((SITE / path).as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def served():
    """The site's address on a local server."""
    handler = functools.partial(QuietHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *message):
        pass


@pytest.mark.parametrize("how", ["as files", "served"])
def test_search_finds_a_commands_page(browser, served, how):
    page = browser.new_page()
    page.goto(f"{served if how == 'served' else SITE.as_uri()}/search.html?q=hpu_autocast")
    results = page.locator("#search-results ul.search li")
    results.filter(has_text="%hpu_autocast").first.wait_for()
    page.wait_for_function(
        "document.querySelector('.search-summary').innerText.includes('finished')"
    )
    found = results.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert found[0].startswith("reference/magics/hpu_autocast.html")
    if how == "served":  # pages opened from files cannot read other pages
        page.wait_for_selector("#search-results .context")
    results.locator("a").first.click()
    assert page.locator("h1").inner_text().startswith("%hpu_autocast")
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_are_not_wider_than_the_window(visit, width):
    page = visit("index.html", WIDTHS[width])
    wide = {}
    for path in sorted(SITE.rglob("*.html")):
        if "_static" not in path.parts:
            page.goto(path.as_uri())
            if found := page.evaluate(OVERFLOW) + page.evaluate(LISTS):
                wide[str(path.relative_to(SITE))] = found[:3]
    assert wide == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_text_is_legible(visit, scheme):
    page = visit("index.html", color_scheme=scheme)
    faint = {}
    for path in CHECKED_PAGES:
        page.goto((SITE / path).as_uri())
        assert page.locator("html").get_attribute("data-theme") == scheme
        if found := faint_texts(page, ".bd-article"):
            faint[path] = found
    assert faint == {}


def pictures(page):
    """Return the files of the visible pictures of a fit."""
    shown = page.locator(".fit img:visible")
    return shown.evaluate_all("all => all.map(one => one.currentSrc.split('/').pop())")


def test_animation_of_the_first_page_can_be_paused(visit):
    page = visit("index.html", color_scheme="light")
    assert pictures(page) == ["fit-light.webp"]
    page.get_by_label("Pause animation").check()
    assert pictures(page) == ["fit-light.png"]
    assert page.locator(".fit img:visible").get_attribute("alt")


def test_reduced_motion_is_respected(visit):
    page = visit("index.html", color_scheme="dark", reduced_motion="reduce")
    assert pictures(page) == ["fit-dark.png"]
    assert not page.get_by_label("Pause animation").is_visible()


def test_chosen_theme_applies_to_other_pages(visit):
    page = visit("index.html", color_scheme="light")
    page.locator("button.theme-switch-button:visible").first.click()
    page.locator("[data-bs-theme-value=dark]:visible, [data-mode=dark]:visible").first.click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.goto((SITE / "tour" / "train.html").as_uri())
    assert page.locator("html").get_attribute("data-theme") == "dark"
