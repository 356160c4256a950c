"""Outputs below a cell that are updated in place, even in pages that missed an update.

A page that is reloaded while a cell is running receives no further output from that cell, because a
front end assigns output to the request that caused it. The saved metadata contains the name of each
output, so that a page can request its current content from the kernel.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

_REMEMBERED = 60
"""Number of finished outputs that a page can still request."""


class Output:
    """An output, which is created below the running cell by the first `show` and then updated."""

    def __init__(self) -> None:
        self.id = f"hpu_magic-{uuid.uuid4().hex}"
        self.revision = 0
        self.bundle: Mapping[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.over = False
        _outputs[self.id] = self

    def show(self, bundle: Mapping[str, Any], *, over: bool = False) -> None:
        """Show a MIME bundle; `over` marks the final update."""
        from IPython.core.display_functions import publish_display_data

        first = self.revision == 0
        self.revision += 1
        identity = {"output": self.id, "revision": self.revision, "over": over}
        self.bundle, self.metadata, self.over = bundle, {"hpu_magic": identity}, over
        publish_display_data(
            dict(bundle), self.metadata, transient={"display_id": self.id}, update=not first
        )
        if over:
            for name in [name for name, each in _outputs.items() if each.over][:-_REMEMBERED]:
                _outputs.pop(name, None)


_outputs: dict[str, Output] = {}


def current_outputs(known: Mapping[str, int]) -> dict[str, Any]:
    """Return the current content of this process's outputs.

    `known` maps the names of outputs to the client's revisions. In the result, ``outputs`` contains
    the data and metadata of outputs with a newer revision, and ``unknown`` the names of outputs
    that belong to other processes.
    """
    ours = {name: _outputs[name] for name in known if name in _outputs}
    return {
        "outputs": {
            name: {"data": output.bundle, "metadata": output.metadata}
            for name, output in ours.items()
            if output.revision > known[name]
        },
        "unknown": [name for name in known if name not in ours],
    }
