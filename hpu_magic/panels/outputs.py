"""Outputs below a cell that are written over in place, and told anew to pages that missed it.

A page that is reloaded while a cell runs hears nothing more of that cell: front ends know where an
output belongs only as long as they know who asked for it. What is saved names each output, so that
a page can ask the kernel for what should stand there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

_REMEMBERED = 60
"""Outputs that are over and can be told all the same."""


class Output:
    """One output; `show` puts it below the running cell first, and writes it over afterwards."""

    def __init__(self) -> None:
        self.id = f"hpu_magic-{uuid.uuid4().hex}"
        self.revision = 0
        self.bundle: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        self.over = False
        _outputs[self.id] = self

    def show(self, bundle: dict[str, Any], *, over: bool = False) -> None:
        """Show a MIME bundle.

        Parameters
        ----------
        bundle
            The data by their types.
        over
            Whether it is the last one.
        """
        from IPython.core.display_functions import publish_display_data

        first = self.revision == 0
        self.revision += 1
        named = {"output": self.id, "revision": self.revision, "over": over}
        self.bundle, self.metadata, self.over = bundle, {"hpu_magic": named}, over
        publish_display_data(
            bundle, self.metadata, transient={"display_id": self.id}, update=not first
        )
        if over:
            for name in [name for name, one in _outputs.items() if one.over][:-_REMEMBERED]:
                _outputs.pop(name, None)


_outputs: dict[str, Output] = {}


def told(known: Mapping[str, int]) -> dict[str, Any]:
    """Return what should stand in outputs of this process.

    Parameters
    ----------
    known
        How often each output had been written when the asker heard of it last, by its name.

    Returns
    -------
    dict
        ``outputs``: data and metadata of those that were written since; ``unknown``: the names
        that are none of this process.
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
