"""Test access control of all routes."""

import http.cookiejar
import os
import re
import urllib.parse
import urllib.request
from contextlib import closing

import pytest
import websocket
from conftest import BASE_URL, Notebook, Server

FOREIGN = "http://elsewhere.example"


def concrete(pattern, kernel):
    """Return a path below the base URL that matches the pattern of a route."""
    path = pattern.removesuffix("$").removeprefix("^").removeprefix(BASE_URL)
    groups = iter(["0", kernel])
    path = re.sub(r"\([^)]*\)", lambda _: next(groups), path)
    assert re.fullmatch(pattern, BASE_URL + path)
    return path


@pytest.fixture(scope="module")
def requests(server):
    """All methods of all routes of hpu_magic, with an existing kernel."""
    work = Notebook(server, "walk.ipynb")
    yield [
        (method.upper(), concrete(pattern, work.kernel))
        for pattern, methods in server.routes
        for method in methods
    ]
    work.close()


@pytest.fixture(scope="module")
def cookies(server):
    """Headers of a browser after login."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
    )
    browser.open(f"{server.url}api/status?token={server.token}")
    browser.open(f"{server.url}login")
    values = {cookie.name: cookie.value for cookie in jar}
    assert "_xsrf" in values
    text = "; ".join(f"{name}={value}" for name, value in values.items())
    return {"Cookie": text, "xsrf": values["_xsrf"]}


def upgrade(server, path, **options):
    """Open a WebSocket and return the status of the response."""
    address = f"ws{server.url.removeprefix('http')}{path}"
    try:
        websocket.create_connection(address, timeout=30, **options).close()
    except websocket.WebSocketBadStatusException as refused:
        return refused.status_code
    return 101


def test_requests_cover_all_routes(requests):
    assert sorted((method, path.split("/")[1]) for method, path in requests) == [
        ("DELETE", "cards"),
        ("DELETE", "cards"),
        ("GET", "history"),
        ("GET", "snapshot"),
        ("GET", "stream"),
    ]


def test_requests_without_valid_token_are_rejected(server, requests):
    for method, path in requests:
        for headers in ({"Accept": "*/*"}, {"Authorization": "token wrong"}):
            assert server.ask(path, method, **headers).status == 403, path
    assert upgrade(server, "hpu_magic/stream", suppress_origin=True) == 403
    wrong = ["Authorization: token wrong"]
    assert upgrade(server, "hpu_magic/stream", header=wrong, suppress_origin=True) == 403


def test_requests_from_other_sites_are_rejected_after_login(server, requests, cookies):
    host = urllib.parse.urlparse(server.url).netloc
    for method, path in requests:
        if path.endswith("stream"):
            cookie = {"cookie": cookies["Cookie"]}
            assert upgrade(server, path, origin=FOREIGN, **cookie) == 403
            assert upgrade(server, path, origin=f"http://{host}", **cookie) == 101
            continue
        own = {"Cookie": cookies["Cookie"], "X-XSRFToken": cookies["xsrf"]}
        foreign = server.ask(path, method, Origin=FOREIGN, Host=host, **own)
        assert foreign.status in (403, 404), path
        assert "does not belong to this server" not in foreign.text
        # The same request from the server's own pages is accepted; the kernel holds no card.
        allowed = server.ask(path, method, Origin=f"http://{host}", Host=host, **own)
        assert allowed.status == {"GET": 200, "DELETE": 409}[method], path


def test_changes_require_the_xsrf_token(server, requests, cookies):
    changing = [(method, path) for method, path in requests if method != "GET"]
    assert changing
    for method, path in changing:
        for forged in ({}, {"X-XSRFToken": "guessed"}):
            answer = server.ask(path, method, Cookie=cookies["Cookie"], **forged)
            assert answer.status == 403, path
            assert "_xsrf" in answer.json["message"] or "XSRF" in answer.json["message"]


def test_metrics_require_a_login(server):
    assert server.ask("metrics", Accept="*/*").status == 403


def test_authorizer_controls_reading_and_shutdown(forked_python, tmp_path):
    (tmp_path / "reading.py").write_text(
        "from jupyter_server.auth import Authorizer\n"
        "class NoCards(Authorizer):\n"
        "    def is_authorized(self, handler, user, action, resource):\n"
        "        return (resource, action) not in [('hpu_magic', 'read'), ('kernels', 'write')]\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    authorizer = "--ServerApp.authorizer_class=reading.NoCards"
    with closing(Server(forked_python, tmp_path, authorizer, PYTHONPATH=path)) as server:
        token = [f"Authorization: token {server.token}"]
        refusals = {
            server.ask("hpu_magic/snapshot").status,
            server.ask("hpu_magic/cards/0/holders/0-0-0-0-0", "DELETE").status,
            server.ask("hpu_magic/cards/0/holders/0-0-0-0-0/fit", "DELETE").status,
            upgrade(server, "hpu_magic/stream", header=token, suppress_origin=True),
        }
        assert refusals == {403}
        assert server.ask("api/status").status == 200


def test_log_warns_about_an_old_jupyterlab(forked_python, tmp_path):
    old = tmp_path / "old" / "jupyterlab-4.1.8.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: jupyterlab\nVersion: 4.1.8\n")
    path = os.pathsep.join([str(old.parent), os.environ.get("PYTHONPATH", "")])
    Server(forked_python, tmp_path, PYTHONPATH=path).close()
    [warning] = re.findall(r"HpuMagicServer\] (.*older.*)", (tmp_path / "log").read_text())
    assert warning == (
        "JupyterLab 4.1.8 is older than 4.2: the sidebar, the status bar, the mode switch and "
        "the charts of panels may be missing or broken; commands work. Run pip install -U "
        '"jupyterlab>=4.2" and restart it.'
    )
