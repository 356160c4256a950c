"""A plain sentence below the traceback of a cell, where it is known what was wrong."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.error import UsageError

from hpu_magic.plain_text import printable


class ExplainedErrors:
    """Watches the errors that cells end with."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._after)

    def close(self) -> None:
        """Watch no more."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        error = result.error_in_exec
        if error is None:
            return
        said = self._full_card(error) or _cause(error)
        if said is not None:
            print(printable(said, keep="\n\t"), file=sys.stderr)

    def _full_card(self, error: BaseException) -> str | None:
        if "torch" not in sys.modules:
            return None
        from hpu_magic.runtime.measure.out_of_memory import explain

        return explain(error, self._shell.user_ns, self._shell.user_ns_hidden)


def _cause(error: BaseException) -> str | None:
    # A refusal says itself what to do, and an interrupt was wanted.
    if isinstance(error, UsageError) or not isinstance(error, Exception):
        return None
    from hpu_magic.huggingface.causes import explain

    return explain(error)
