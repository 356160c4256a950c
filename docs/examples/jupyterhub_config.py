"""JupyterHub on a machine with Gaudi cards: each user's server has a card, given back as it ends.

Run by root, as JupyterHub starts users' servers under their own accounts:
``jupyterhub -f jupyterhub_config.py``.
"""

import asyncio
import json
import os
from datetime import datetime
from pathlib import Path

from jupyterhub.spawner import LocalProcessSpawner
from tornado import web

c = get_config()  # noqa: F821 (JupyterHub gives it)

# Who has which card, for every user's sidebar. Users may read it, and only JupyterHub writes it.
CARD_USERS = Path(os.environ.get("CARD_USERS", "/run/hpu_magic/card_users.json"))


def refusal(text):
    """Return the error whose text the user's page shows."""
    error = web.HTTPError(503, text.replace("%", "%%"))
    error.jupyterhub_message = text
    return error


class OneCard:
    """What makes a spawner allot a card to each server."""

    allotted = {}  # module id: user and time, of the servers of all users
    card = None
    _starting = False

    async def start(self):
        """Take a card and start the server; without a card, the user is told whose they are."""
        await self._take_card()
        self._starting = True
        try:
            return await super().start()
        except BaseException:
            self._give_back()
            raise
        finally:
            self._starting = False

    def get_env(self):
        """Let the server's kernels take this card and no other."""
        environment = super().get_env()
        environment["HABANA_VISIBLE_MODULES"] = str(self.card)
        environment["HPU_MAGIC_CARD_USERS"] = str(CARD_USERS)
        return environment

    def get_state(self):
        """Remember the card over a restart of JupyterHub, which servers survive."""
        state = super().get_state()
        if self.card is not None:
            state["card"] = self.card
        return state

    def load_state(self, state):
        """Have the card of a server that was there before JupyterHub."""
        super().load_state(state)
        if state.get("card") is not None:
            self._allot(state["card"])

    def clear_state(self):
        """The server has ended, in whichever way."""
        super().clear_state()
        if not self._starting:
            self._give_back()

    async def _take_card(self):
        cards = await self._look()
        free = [
            one["module_id"]
            for one in cards
            if one["module_id"] not in self.allotted and not one["holders"]
        ]
        if not free:
            raise refusal(
                f"No card is free: {self._whose(cards) or 'this machine shows none'}. Ask one of "
                "them to stop their server (File > Hub Control Panel), and start again."
            )
        self._allot(free[0])

    async def _look(self):
        """Read the cards in a process of its own, as a driver may hang."""
        command = ("hpu-magic", "top", "--json")
        asked = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            said, _ = await asyncio.wait_for(asked.communicate(), 30)
        except asyncio.TimeoutError:
            asked.kill()
            said = b""
        if not said:
            raise refusal("The cards cannot be read: hpu-magic doctor tells administrators why.")
        return json.loads(said)["cards"]

    def _whose(self, cards):
        held = [
            f"HPU {module} is {user}'s since {since:%H:%M}"
            for module, (user, since) in sorted(self.allotted.items())
        ]
        held += [
            f"HPU {one['module_id']} is held by a process of {holder['user'] or 'somebody'}"
            for one in cards
            if one["module_id"] not in self.allotted
            for holder in one["holders"][:1]
        ]
        return ", ".join(held)

    def _allot(self, card):
        self.card = card
        self.allotted[card] = (self.user.name, datetime.now())
        self._publish()

    def _give_back(self):
        if self.card is not None:
            self.allotted.pop(self.card, None)
            self.card = None
            self._publish()

    def _publish(self):
        users = {str(card): user for card, (user, _) in self.allotted.items()}
        CARD_USERS.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        beside = CARD_USERS.with_suffix(".new")
        beside.write_text(json.dumps(users))
        beside.chmod(0o644)
        beside.replace(CARD_USERS)  # readers see the one or the other


class OneCardSpawner(OneCard, LocalProcessSpawner):
    """Starts servers under users' own accounts, with a card each."""


c.JupyterHub.spawner_class = OneCardSpawner
c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # behind the proxy that has the certificate
c.Spawner.default_url = "/lab"
