"""A notebook that runs in a real kernel, and the outputs of its cells."""

import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import nbformat
from nbclient import NotebookClient

_RANKS = re.compile(r"\d+ ranks?\n  rank +(host +)?card ")
_ANSI = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Outputs:
    """The outputs of a cell, without colors."""

    outputs: list[Any]

    @property
    def texts(self) -> list[str]:
        """The text of each output in order, without errors and the table of ranks.

        The table appears in each cell that takes longer than a second. IPython writes the end of a
        line separately, so a kernel may send it separately.
        """
        texts: list[str] = []
        for output in self.outputs:
            text = _text(output)
            if text == "\n" and texts and output.output_type == "stream":
                texts[-1] += text
            elif output.output_type != "error" and not _RANKS.match(text):
                texts.append(text)
        return texts

    @property
    def ranks(self) -> str:
        """The table of ranks, or an empty string if the cell was too short."""
        return next(filter(_RANKS.match, map(_text, self.outputs)), "")

    @property
    def error(self) -> str:
        """The traceback, or an empty string."""
        lines = [line for output in self.outputs for line in output.get("traceback", ())]
        return _ANSI.sub("", "\n".join(lines))


def _text(output: Any) -> str:
    text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
    return _ANSI.sub("", text)


class Notebook:
    """Runs cells one after another, on private cards."""

    def __init__(self, **environment: str) -> None:
        self._notebook = nbformat.v4.new_notebook()
        self._client = NotebookClient(self._notebook, allow_errors=True, timeout=180)
        self._client.create_kernel_manager()
        self._cards = tempfile.TemporaryDirectory()
        cards = {"HPU_MAGIC_CARDS_DIR": self._cards.name}
        self._client.start_new_kernel(env={**os.environ, **cards, **environment})
        self._client.start_new_kernel_client()
        self.pid: int = self._client.km.provisioner.pid
        self.number: int | None = None  # of the last cell

    def run(self, source: str) -> Outputs:
        """Run a cell and return its outputs."""
        cell = nbformat.v4.new_code_cell(source)
        self._notebook.cells.append(cell)
        self._client.execute_cell(cell, len(self._notebook.cells) - 1)
        self.number = cell.execution_count
        return Outputs(cell.outputs)

    @contextmanager
    def interrupted(
        self, *moments: float, when: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Interrupt the cell in the block, as a front end would.

        The interrupts are sent `moments` seconds after `when` returns True.
        """
        over = threading.Event()

        def interrupt() -> None:
            while not when():
                if over.wait(0.02):
                    return
            began = time.monotonic()
            for moment in moments:
                if over.wait(max(0.0, began + moment - time.monotonic())):
                    return
                os.killpg(os.getpgid(self.pid), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def close(self) -> None:
        """End the kernel, as a front end would."""
        self._client._cleanup_kernel()
        self._cards.cleanup()
