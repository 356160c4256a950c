"""A process in lazy mode that runs code, since each process has only one mode."""

import json
import os
import socket
import tempfile
import textwrap
from pathlib import Path

from forked_python import ForkedPython

_LOOP = """
import contextlib, io, json, os, socket, traceback

import torch
import habana_frameworks.torch.core as htcore

connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["SOCKET"])
replies = connection.makefile("w")

def error_of(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return str(error)

for request in connection.makefile("r"):
    out, error = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        try:
            code = compile(json.loads(request), "cell.py", "exec")
            exec(code, {"torch": torch, "htcore": htcore, "error_of": error_of})
        except Exception:
            error = traceback.format_exc()
    replies.write(json.dumps([out.getvalue(), error]) + "\\n")
    replies.flush()
"""

# Code that creates two equal models, and compares tensors
MODEL = """
import copy
from torch import nn

torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to("hpu")
other = copy.deepcopy(plain)

def same(one, two):
    return torch.equal(one.detach().cpu(), two.detach().cpu())
"""


# A module with one weight, which records the length of its inputs
SCALE = """
calls = []

class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((1,), 3.0, device="hpu"))

    def forward(self, x):
        calls.append(len(x))
        return x * self.weight
"""


class LazyProcess:
    """Runs code in lazy mode.

    The code can use ``torch``, ``htcore``, and ``error_of(call, *arguments)``, which returns the
    message of the error that a call raises.
    """

    def __init__(self, python: ForkedPython) -> None:
        self._folder = tempfile.TemporaryDirectory()
        place, self._output = (Path(self._folder.name, name) for name in ("socket", "output"))
        mode = {"HPU_MAGIC_SIMULATOR": "1", "PT_HPU_LAZY_MODE": "1"}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(place))
            listening.listen()
            listening.settimeout(60)
            environment = {**os.environ, **mode, "SOCKET": str(place)}
            with self._output.open("wb") as output:
                python.start(_LOOP, environment, output, output)
            self._connection, _ = listening.accept()
        self._connection.settimeout(None)
        self._replies = self._connection.makefile("r")

    def __call__(self, code: str) -> list[str]:
        """Run code in a new namespace and return the printed lines."""
        self._connection.sendall(json.dumps(textwrap.dedent(code)).encode() + b"\n")
        reply = self._replies.readline()
        assert reply, f"the process has ended: {self._output.read_text()}"
        out, error = json.loads(reply)
        assert error is None, error
        return out.splitlines()

    def close(self) -> None:
        self._connection.shutdown(socket.SHUT_WR)
        assert self._replies.read() == "", "more replies than requests"
        self._replies.close()
        self._connection.close()
        self._folder.cleanup()
