"""JupyterHub on a machine with Gaudi cards: each user's server holds a card while it runs.

Start it as root, because JupyterHub starts the servers under the users' accounts:
``jupyterhub -f jupyterhub_config.py``.
"""

import asyncio
import json
import os
from datetime import datetime
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner
from tornado import web

c = get_config()  # noqa: F821 (JupyterHub defines it)

# The user of each card, shown in the sidebars. All users can read this file; only JupyterHub writes
# it.
CARD_USERS = Path(os.environ.get("CARD_USERS", "/run/hpu_magic/card_users.json"))


def refusal(text):
    """Return an error whose message JupyterHub shows to the user."""
    error = web.HTTPError(503, text.replace("%", "%%"))
    error.jupyterhub_message = text
    return error


class OneCard:
    """Mixin for spawners that assigns a card to each server."""

    assigned = {}  # maps module IDs to (user, start time); shared by the servers of all users
    card = None
    _starting = False

    async def start(self):
        """Assign a card and start the server; raise an error if no card is free."""
        await self._assign_free_card()
        self._starting = True
        try:
            return await super().start()
        except BaseException:
            self._free_card()
            raise
        finally:
            self._starting = False

    def get_env(self):
        """Limit the server's kernels to the assigned card."""
        environment = super().get_env()
        environment["HABANA_VISIBLE_MODULES"] = str(self.card)
        environment["HPU_MAGIC_CARD_USERS"] = str(CARD_USERS)
        return environment

    def get_state(self):
        """Save the assigned card, because servers keep running while JupyterHub restarts."""
        state = super().get_state()
        if self.card is not None:
            state["card"] = self.card
        return state

    def load_state(self, state):
        """Restore the card of a running server after a restart of JupyterHub."""
        super().load_state(state)
        if state.get("card") is not None:
            self._assign(state["card"])

    def clear_state(self):
        """Free the card when the server has ended, for any reason."""
        super().clear_state()
        if not self._starting:
            self._free_card()

    async def _assign_free_card(self):
        cards = await self._read_cards()
        free = [
            card["module_id"]
            for card in cards
            if card["module_id"] not in self.assigned and not card["holders"]
        ]
        if not free:
            raise refusal(
                f"No card is free: {self._holders(cards) or 'this machine has none'}. Ask "
                "another user to stop their server (File > Hub Control Panel), then start yours "
                "again."
            )
        self._assign(free[0])

    async def _read_cards(self):
        """Query the cards in a separate process, because the driver may hang."""
        command = ("hpu-magic", "top", "--json")
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            output, _ = await asyncio.wait_for(process.communicate(), 30)
        except asyncio.TimeoutError:
            process.kill()
            output = b""
        if not output:
            raise refusal(
                "JupyterHub cannot read the cards; an administrator can run hpu-magic doctor."
            )
        return json.loads(output)["cards"]

    def _holders(self, cards):
        holders = [
            f"HPU {module} is in use by {user} since {since:%H:%M}"
            for module, (user, since) in sorted(self.assigned.items())
        ]
        holders += [
            f"HPU {card['module_id']} is held by a process of {holder['user'] or 'another user'}"
            for card in cards
            if card["module_id"] not in self.assigned
            for holder in card["holders"][:1]
        ]
        return ", ".join(holders)

    def _assign(self, card):
        self.card = card
        self.assigned[card] = (self.user.name, datetime.now())
        self._publish()

    def _free_card(self):
        if self.card is not None:
            self.assigned.pop(self.card, None)
            self.card = None
            self._publish()

    def _publish(self):
        users = {str(card): user for card, (user, _) in self.assigned.items()}
        CARD_USERS.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = CARD_USERS.with_suffix(".new")
        new.write_text(json.dumps(users))
        new.chmod(0o644)
        new.replace(CARD_USERS)  # atomic, so readers never see an incomplete file


class OneCardSpawner(OneCard, LocalProcessSpawner):
    """Starts each server under the user's account, with one card."""


c.JupyterHub.spawner_class = OneCardSpawner
c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # for use behind a proxy that provides HTTPS
c.Spawner.default_url = "/lab"
