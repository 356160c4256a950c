"""The JupyterHub configuration in docs/examples: cards are assigned, freed and shown."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import types
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from installed_project import EXAMPLES, environment
from started_process import started, wait_for
from tornado import web
from traitlets.config import Config

CONFIGURATION = EXAMPLES / "jupyterhub_config.py"
# Acquires the first card.
HOLDS = """
import os
os.environ["HLS_MODULE_ID"] = "0"
from hpu_magic.simulator import cards
cards.acquire()
print("held", flush=True)
input()
"""


class Processes:
    """Replacement for LocalProcessSpawner that does not start a process."""

    def __init__(self, user):
        self.user = types.SimpleNamespace(name=user)
        self.fails = False
        self.environment: dict[str, str] = {}

    async def start(self):
        self.environment = self.get_env()
        if self.fails:
            raise RuntimeError("no such account")
        return "started"

    def get_env(self):
        return {"HOME": "/home"}

    def get_state(self):
        return {"pid": 7}

    def load_state(self, state): ...

    def clear_state(self): ...


@pytest.fixture
def spawner(tmp_path, monkeypatch):
    """The spawner class, on a machine with two simulated cards."""
    variables = environment(tmp_path) | {"HPU_MAGIC_CARDS": "2"}
    for name in ("PATH", "PYTHONPATH", "HPU_MAGIC_CARDS_DIR", "HPU_MAGIC_CARDS"):
        monkeypatch.setenv(name, variables[name])
    monkeypatch.setenv("CARD_USERS", str(tmp_path / "run" / "card_users.json"))
    module = types.ModuleType("jupyterhub.spawner")
    module.LocalProcessSpawner = Processes
    monkeypatch.setitem(sys.modules, "jupyterhub", types.ModuleType("jupyterhub"))
    monkeypatch.setitem(sys.modules, "jupyterhub.spawner", module)
    settings = Config()
    exec(CONFIGURATION.read_text(), {"get_config": lambda: settings})
    return settings.JupyterHub.spawner_class


def card_users(tmp_path):
    return json.loads((tmp_path / "run" / "card_users.json").read_text())


def test_user_has_a_card_until_their_server_ends(spawner, tmp_path):
    ada, grace, mary = spawner("ada"), spawner("grace"), spawner("mary")
    assert [asyncio.run(user.start()) for user in (ada, grace)] == ["started", "started"]
    modules = [user.environment["HABANA_VISIBLE_MODULES"] for user in (ada, grace)]
    assert modules == ["0", "1"]
    assert card_users(tmp_path) == {"0": "ada", "1": "grace"}
    assert ada.environment["HPU_MAGIC_CARD_USERS"] == str(tmp_path / "run" / "card_users.json")
    with pytest.raises(web.HTTPError) as refused:
        asyncio.run(mary.start())
    message = refused.value.jupyterhub_message
    assert re.fullmatch(
        r"No card is free: HPU 0 is in use by ada since \d\d:\d\d, HPU 1 is in use by grace since "
        r"\d\d:\d\d\. Ask another user to stop their server \(File > Hub Control Panel\), "
        r"then start yours again\.",
        message,
    )
    ada.clear_state()
    asyncio.run(mary.start())
    assert mary.environment["HABANA_VISIBLE_MODULES"] == "0"
    assert card_users(tmp_path) == {"0": "mary", "1": "grace"}


def test_server_that_fails_to_start_frees_its_card(spawner, tmp_path):
    ada = spawner("ada")
    ada.fails = True
    with pytest.raises(RuntimeError, match="no such account"):
        asyncio.run(ada.start())
    assert card_users(tmp_path) == {}


def test_unreadable_cards_are_reported(spawner, tmp_path):
    (tmp_path / "bin" / "hpu-magic").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(web.HTTPError) as refused:
        asyncio.run(spawner("ada").start())
    assert refused.value.jupyterhub_message == (
        "JupyterHub cannot read the cards; an administrator can run hpu-magic doctor."
    )


def test_assigned_cards_survive_a_restart_of_the_hub(spawner, tmp_path):
    ada = spawner("ada")
    asyncio.run(ada.start())
    state = ada.get_state()
    assert state == {"pid": 7, "card": 0}
    spawner.assigned.clear()  # a new process
    spawner("ada").load_state(state)
    assert spawner.assigned[0][0] == "ada"


def test_card_held_by_another_process_is_not_assigned(spawner, tmp_path):
    with started(HOLDS) as held:
        assert held.printed == "held\n"
        ada, grace = spawner("ada"), spawner("grace")
        asyncio.run(ada.start())
        assert ada.environment["HABANA_VISIBLE_MODULES"] == "1"
        with pytest.raises(web.HTTPError, match=r"HPU 0 is held by a process of \w+\."):
            asyncio.run(grace.start())


# A real JupyterHub with users that have no accounts on this machine.
TRIAL = """
import os, sys
exec(open({configuration!r}).read())
from jupyterhub.spawner import SimpleLocalProcessSpawner

class Trial(OneCard, SimpleLocalProcessSpawner):
    pass

c.JupyterHub.spawner_class = Trial
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{ports[1]}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
c.Spawner.http_timeout = 90
c.Spawner.environment = {{"JUPYTER_CONFIG_PATH": {extension!r}}}
c.Spawner.env_keep = [name for name in os.environ if not name.startswith(("JUPYTER", "CONFIG"))]
c.SimpleLocalProcessSpawner.home_dir_template = {folder!r} + "/{{username}}"
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{
    "name": "test", "services": ["test"],
    "scopes": ["admin:users", "admin:servers", "admin:server_state", "access:servers"],
}}]
c.JupyterHub.cleanup_servers = True
"""
TOKEN = "0123456789abcdef0123456789abcdef"


class Hub:
    """A running JupyterHub, controlled through its REST API."""

    def __init__(self, port):
        self._address = f"http://127.0.0.1:{port}"

    def __call__(self, method, path):
        request = urllib.request.Request(self._address + path, method=method)
        request.add_header("Authorization", f"token {TOKEN}")
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")

    def server(self, user):
        """Start a user's server, wait until it is ready, and return it."""
        self("POST", f"/hub/api/users/{user}")
        status, answer = self("POST", f"/hub/api/users/{user}/server")
        if status >= 400:
            return {"refused": answer["message"]}
        return wait_for(lambda: self._ready(user))

    def stop(self, user):
        """Stop a user's server and wait until it has ended."""
        self("DELETE", f"/hub/api/users/{user}/server")
        wait_for(lambda: not self("GET", f"/hub/api/users/{user}")[1]["servers"])

    def _ready(self, user):
        server = self("GET", f"/hub/api/users/{user}")[1]["servers"].get("")
        return server if server and server["ready"] else None


@pytest.fixture
def hub(tmp_path):
    python = os.environ.get("HPU_MAGIC_TEST_JUPYTERHUB")
    if not python:
        pytest.skip("make examples runs it")
    if shutil.which("npm") is None:
        pytest.skip("npm, for JupyterHub's proxy, is not installed")
    kept = Path(python).parents[1]
    proxy = kept / "node_modules" / ".bin" / "configurable-http-proxy"
    if not proxy.exists():
        wanted = "configurable-http-proxy@5.3.0"
        subprocess.run(["npm", "install", "--silent", "--prefix", kept, wanted], check=True)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [item.getsockname()[1] for item in sockets]
    for each in sockets:
        each.close()
    settings = tmp_path / "trial_config.py"
    settings.write_text(
        TRIAL.format(
            configuration=str(CONFIGURATION),
            ports=ports,
            proxy=str(proxy),
            extension=str(EXAMPLES.parents[1] / "jupyter-config"),
            folder=str(tmp_path),
            token=TOKEN,
        )
    )
    variables = environment(tmp_path) | {
        "CARD_USERS": str(tmp_path / "run" / "card_users.json"),
        "HPU_MAGIC_CARDS": "2",
    }
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [python, "-m", "jupyterhub", "-f", settings],
            cwd=tmp_path,
            env=variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    found = Hub(ports[0])
    try:
        wait_for(lambda: _answers(found) or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield found
    finally:
        process.terminate()
        process.wait(60)
        # A hub that fails during its start leaves its proxy running.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _answers(hub):
    try:
        return hub("GET", "/hub/api/users")[0] == 200
    except (OSError, ValueError):  # the proxy starts before the hub
        return False


def test_real_hub_allots_two_cards_to_three_users(hub, tmp_path):
    ada, grace = hub.server("ada"), hub.server("grace")
    assert [ada["state"]["card"], grace["state"]["card"]] == [0, 1]
    for server, module in ((ada, "0"), (grace, "1")):
        started = Path(f"/proc/{server['state']['pid']}/environ").read_text().split("\0")
        assert f"HABANA_VISIBLE_MODULES={module}" in started
    message = hub.server("mary")["refused"]
    assert re.match(
        r"No card is free: HPU 0 is in use by ada since .*, HPU 1 is in use by grace since ",
        message,
    )
    # Ada's process acquires her card, and Grace's sidebar shows Ada as the card's user.
    with started(HOLDS, env={**os.environ, "HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards")}) as held:
        assert held.printed == "held\n"
        status, seen = hub("GET", "/user/grace/hpu_magic/snapshot")
    assert status == 200
    assert [[holder["user"] for holder in card["holders"]] for card in seen["cards"]] == [
        ["ada"],
        [],
    ]
    hub.stop("ada")
    assert hub.server("mary")["state"]["card"] == 0
    assert card_users(tmp_path) == {"0": "mary", "1": "grace"}
