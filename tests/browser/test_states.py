"""What the sidebar shows of real cards, of none, and of a server that tells it nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import QUIET_LAB, Lab, run_lab

pytestmark = pytest.mark.browser


def open_sidebar(page: Any, lab: Lab) -> Any:
    """Open the sidebar beside the launcher, and return it once it has looked at the cards."""
    page.goto(f"{lab.url}/lab?token={lab.token}")
    page.locator(".jp-SideBar [data-id='hpu_magic-sidebar']").click(timeout=60_000)
    sidebar = page.locator(".hpu-Cards")
    shown = sidebar.locator(".hpu-Card:visible, .hpu-Notice:visible")
    shown.filter(has_not_text="Looking for cards").first.wait_for()
    return sidebar


def told(sidebar: Any) -> tuple[str, str]:
    """Return title and sentence of the sidebar's notice."""
    notice = sidebar.locator(".hpu-Notice")
    notice.wait_for()
    return tuple(notice.locator(f".hpu-Notice-{part}").inner_text() for part in ("title", "detail"))


def test_real_cards_show_what_each_knows(
    page: Any, tmp_path: Path, hlml_cards: dict[str, str]
) -> None:
    with run_lab(tmp_path, **hlml_cards) as lab:
        sidebar = open_sidebar(page, lab)
        rows = sidebar.locator(".hpu-Card")
        rows.nth(2).wait_for()
        # The lost card does not tell its module id, and gets one that no other has.
        lost, *texts = [rows.nth(index).inner_text().split("\n") for index in range(3)]
        figures = ["6.00 / 96 GiB", "37 %", "88 W"]
        assert texts[0] == ["HPU 4", "Gaudi2", "in use", *figures]
        assert texts[1] == ["HPU 5", "Gaudi3", "in use", figures[0]]
        assert lost[0] == "HPU 0"
        assert lost[1].startswith("The card is lost")
        title, detail = told(sidebar)
        assert title == "Some data are not available"
        assert "HPU 4 and HPU 5 are in use" in detail
        assert sidebar.get_by_role("button", name="HPU 0: open charts").count() == 1
    assert page.problems == []


@pytest.fixture
def vendor_package(tmp_path: Path) -> dict[str, str]:
    """Environment in which the vendor's package is installed, so that nothing is simulated."""
    package = tmp_path / "site" / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_machine_without_driver_says_so(
    page: Any, tmp_path: Path, vendor_package: dict[str, str]
) -> None:
    with run_lab(tmp_path, **vendor_package) as lab:
        title, detail = told(open_sidebar(page, lab))
    assert title == "No Gaudi cards to show"
    assert "comes with the Gaudi driver" in detail or "habana-pyhlml" in detail


def test_server_without_the_extension_says_how_to_get_it(page: Any, tmp_path: Path) -> None:
    (tmp_path / ".config").mkdir()
    off = {"ServerApp": {"jpserver_extensions": {"hpu_magic": False}}}
    (tmp_path / ".config" / "jupyter_server_config.json").write_text(json.dumps(off))
    with run_lab(tmp_path) as lab:
        title, detail = told(open_sidebar(page, lab))
    assert title == "The server extension is not running"
    assert "jupyter server extension enable hpu_magic" in detail


AUTHORIZER = """
from jupyter_server.auth import Authorizer

class NoCards(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "hpu_magic"

c.ServerApp.authorizer_class = NoCards
"""


def test_refused_user_is_told(page: Any, tmp_path: Path) -> None:
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "jupyter_server_config.py").write_text(AUTHORIZER)
    with run_lab(tmp_path) as lab:
        title, detail = told(open_sidebar(page, lab))
    assert title == "No permission"
    assert "request access" in detail


def test_settings_take_effect_at_once(page: Any, tmp_path: Path) -> None:
    sent: list[str] = []

    def listen(socket: Any) -> None:
        if "hpu_magic/stream" in socket.url:
            socket.on("framesent", lambda frame: sent.append(str(frame)))

    page.on("websocket", listen)
    with run_lab(tmp_path, QUIET_LAB, HPU_MAGIC_CARDS="1") as lab:
        open_sidebar(page, lab).locator(".hpu-Card").wait_for()
        page.keyboard.press("Control+,")
        page.locator(".jp-PluginList-entry", has_text="HPU cards").click()
        form = page.locator(".jp-SettingsForm, .jp-SettingsPanel").first
        form.get_by_text("Sampling interval (s)").wait_for()
        for label in ("Card of the kernel", "Execution mode", "Memory in use"):
            assert form.get_by_label(label).is_checked()
        page.locator("[id='jp-SettingsEditor-hpu_magic:plugin_interval']").fill("3")
        page.wait_for_timeout(2_000)
    assert [json.loads(message) for message in sent] == [{"type": "interval", "seconds": 3}]
    assert page.problems == []
