"""Test the sidebar with real cards, without cards, and without access to the server's data."""

import json

import pytest
from conftest import QUIET_LAB

pytestmark = pytest.mark.browser


@pytest.fixture
def page(own_page):
    return own_page


def open_sidebar(page, lab):
    """Open the sidebar, and return it after its first sample."""
    page.goto(f"{lab.url}/lab?token={lab.token}")
    page.locator(".jp-SideBar [data-id='hpu_magic-sidebar']").click()
    sidebar = page.locator(".hpu-Cards")
    shown = sidebar.locator(".hpu-Card:visible, .hpu-Notice:visible")
    shown.filter(has_not_text="Looking for cards").first.wait_for()
    return sidebar


def notice_of(sidebar):
    """Return the title and the text of the sidebar's notice."""
    notice = sidebar.locator(".hpu-Notice")
    notice.wait_for()
    return tuple(notice.locator(f".hpu-Notice-{part}").inner_text() for part in ("title", "detail"))


def test_real_cards_show_their_available_values(page, start_lab, hlml_cards):
    lab = start_lab(**hlml_cards)
    sidebar = open_sidebar(page, lab)
    rows = sidebar.locator(".hpu-Card")
    rows.nth(2).wait_for()
    # The module ID of the lost card is unknown, so the card gets a number that is free.
    lost, *texts = [rows.nth(index).inner_text().split("\n") for index in range(3)]
    figures = ["6.00 / 96 GiB", "37 %", "88 W"]
    assert texts[0] == ["HPU 4", "Gaudi2", "in use", *figures]
    assert texts[1] == ["HPU 5", "Gaudi3", "in use", figures[0]]
    assert lost[0] == "HPU 0"
    assert lost[1].startswith("The card is lost")
    title, detail = notice_of(sidebar)
    assert title == "Some data is not available"
    assert "HPU 4 and HPU 5 are in use" in detail
    assert sidebar.get_by_role("button", name="HPU 0: open charts").count() == 1


@pytest.fixture
def vendor_package(tmp_path):
    """An environment with the vendor's package installed, so that no cards are simulated."""
    package = tmp_path / "site" / "habana_frameworks" / "torch"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_missing_driver_is_reported(page, start_lab, vendor_package):
    lab = start_lab(**vendor_package)
    title, detail = notice_of(open_sidebar(page, lab))
    assert title == "No Gaudi cards to show"
    assert "comes with the Gaudi driver" in detail or "habana-pyhlml" in detail


def test_disabled_server_extension_is_reported_with_a_fix(page, start_lab, tmp_path):
    (tmp_path / ".config").mkdir()
    off = {"ServerApp": {"jpserver_extensions": {"hpu_magic": False}}}
    (tmp_path / ".config" / "jupyter_server_config.json").write_text(json.dumps(off))
    lab = start_lab()
    title, detail = notice_of(open_sidebar(page, lab))
    assert title == "The server extension is not running"
    assert "jupyter server extension enable hpu_magic" in detail


AUTHORIZER = """
from jupyter_server.auth import Authorizer

class NoCards(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "hpu_magic"

c.ServerApp.authorizer_class = NoCards
"""


def test_missing_permission_is_reported(page, start_lab, tmp_path):
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "jupyter_server_config.py").write_text(AUTHORIZER)
    lab = start_lab()
    title, detail = notice_of(open_sidebar(page, lab))
    assert title == "No permission"
    assert "request access" in detail


def test_settings_take_effect_immediately(page, start_lab):
    sent: list[str] = []

    def listen(socket):
        if "hpu_magic/stream" in socket.url:
            socket.on("framesent", lambda frame: sent.append(str(frame)))

    page.on("websocket", listen)
    lab = start_lab(QUIET_LAB, HPU_MAGIC_CARDS="1")
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
    stored = lab.folder / ".settings" / "hpu_magic" / "plugin.jupyterlab-settings"
    assert '"interval": 3' in stored.read_text()  # servers of tests do not share settings
