"""A notebook session whose kernel holds a card, without a page."""

import json
import urllib.request
from typing import Any

from conftest import Lab
from lab_page import PATIENCE
from running_server import connected

# Holds a card with five GiB in use, without torch.
HOLD = """
import struct
from hpu_magic.simulator import cards
from hpu_magic.simulator.cards import page
card = cards.acquire()
struct.pack_into("<q", card.page, page.COUNTERS_OFFSET, 5 << 30)
"""


class HoldingNotebook:
    """A session whose kernel has run `source`."""

    def __init__(self, lab: Lab, name: str, source: str = HOLD) -> None:
        self.lab = lab
        session = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        self.session = self.request("api/sessions", "POST", session)
        self.client = connected(lab.folder / ".runtime", self.session["kernel"]["id"])
        reply = self.client.execute_interactive(source, timeout=PATIENCE)
        assert reply["content"]["status"] == "ok", reply

    def request(self, path: str, method: str = "GET", body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.lab.url}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {self.lab.token}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def is_in_history(self) -> bool:
        """Return whether the server's history contains a few seconds of this notebook's card."""
        name = self.session["path"]
        spans = self.request("hpu_magic/history")["holders"]
        return any(span["notebook"] == name and span["to"] - span["from"] > 3 for span in spans)

    def close(self) -> None:
        self.client.stop_channels()
        self.request(f"api/sessions/{self.session['id']}", "DELETE")
