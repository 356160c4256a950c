"""A plain sentence below the traceback of a cell for which the card was too full."""

from __future__ import annotations

import sys
from typing import Any


class FullCard:
    """Watches the errors that cells end with."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._after)

    def close(self) -> None:
        """Watch no more."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        if error is None or "torch" not in sys.modules:
            return
        from hpu_magic.runtime.measure.out_of_memory import explain

        said = explain(error, self._shell.user_ns, self._shell.user_ns_hidden)
        if said is not None:
            print(said, file=sys.stderr)
