"""Requests for the status of a kernel's device do not count as activity."""

from __future__ import annotations

import time
from typing import Any

from running_server import PATIENCE, Server, run, wait_for


def ask_status(client: Any) -> dict[str, Any]:
    request = client.session.msg("hpu_magic_status_request", {})
    client.control_channel.send(request)
    reply: dict[str, Any] = client.control_channel.get_msg(timeout=PATIENCE)
    assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
    return reply


def test_status_requests_are_not_activity(tmp_path):
    server = Server(tmp_path)
    try:
        session = {"path": "work.ipynb", "name": "work.ipynb", "type": "notebook"}
        started = server.ask("sessions", {**session, "kernel": {"name": "python3"}})
        kernel = f"kernels/{started['kernel']['id']}"
        client = server.connect(started["kernel"]["id"])
        run(client, "%load_ext hpu_magic")

        client.execute("import time; time.sleep(4)")
        wait_for(lambda: server.ask(kernel)["execution_state"] == "busy")
        assert ask_status(client)["content"]["status"] == "ok"
        time.sleep(0.5)  # time for the server to receive the status
        assert server.ask(kernel)["execution_state"] == "busy"

        wait_for(lambda: server.ask(kernel)["execution_state"] == "idle")
        before = server.ask(kernel)["last_activity"]
        ask_status(client)
        time.sleep(0.5)
        assert server.ask(kernel)["last_activity"] == before
        client.stop_channels()
    finally:
        server.process.terminate()
        server.process.wait(timeout=30)
