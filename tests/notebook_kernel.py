"""A kernel with the extension loaded that runs cells."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """The outputs of a cell; `shown` has the data of each rich output."""

    printed: str = ""
    shown: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    @property
    def text(self) -> str:
        """All outputs as text."""
        texts = [data.get("text/plain", "") for data in self.shown]
        return "\n".join([self.printed, *texts, self.error])


class NotebookKernel:
    """A running kernel."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager = manager
        self.client = client

    def __call__(
        self, source: str, *, interrupt_after: str | None = None, **options: Any
    ) -> Answer:
        """Run a cell; interrupt it after it has printed a text."""
        request = self.client.execute(source, **options)
        answer = Answer()
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                answer.printed += content["text"]
                if interrupt_after and interrupt_after in content["text"]:
                    time.sleep(0.2)
                    self._manager.interrupt_kernel()
            elif "data" in content:
                answer.shown.append(content["data"])
            elif message["msg_type"] == "error":
                answer.error = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))
            elif content.get("execution_state") == "idle":
                self._wait_for_reply(request)
                return answer

    def _wait_for_reply(self, request: str) -> None:
        # ipykernel 7.3, the newest release for Python 3.10, can lose a request that arrives while
        # it sends the reply to the previous one.
        while True:
            reply = self.client.get_shell_msg(timeout=120)
            if reply["parent_header"].get("msg_id") == request:
                return

    def value(self, expression: str) -> Any:
        """Return the value of an expression; JSON must support its type."""
        answer = self(f"import json; print(json.dumps({expression}))")
        assert not answer.error, answer.error
        return json.loads(answer.printed.splitlines()[-1])

    def request(self, topic: str, timeout: float = 20, **content: Any) -> Any:
        """Send one of hpu_magic's requests on the control channel and return the reply."""
        message = self.client.session.msg(f"hpu_magic_{topic}_request", content)
        self.client.control_channel.send(message)
        reply = self.client.control_channel.get_msg(timeout=timeout)
        assert reply["parent_header"]["msg_id"] == message["header"]["msg_id"]
        assert reply["msg_type"] == f"hpu_magic_{topic}_reply"
        return reply["content"]

    def wait_until_printed(self, text: str) -> None:
        """Wait until a running cell prints a text."""
        while text not in self.client.get_iopub_msg(timeout=120)["content"].get("text", ""):
            pass


@contextmanager
def running_kernel(
    first: str = "%load_ext hpu_magic", **environment: str
) -> Iterator[NotebookKernel]:
    """Start a kernel with environment variables and run a first cell."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", env={**os.environ, **environment})
    try:
        kernel = NotebookKernel(manager, client)
        kernel(first)
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
