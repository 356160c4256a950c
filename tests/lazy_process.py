"""A process in lazy mode that runs pieces of code, since the mode is read once a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

_LOOP = """
import contextlib, io, json, sys, traceback

import torch
import habana_frameworks.torch.core as htcore

replies, sys.stdout = sys.stdout, sys.stderr
for request in sys.stdin:
    out, error = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        try:
            code = compile(json.loads(request), "cell.py", "exec")
            exec(code, {"torch": torch, "htcore": htcore})
        except Exception:
            error = traceback.format_exc()
    replies.write(json.dumps([out.getvalue(), error]) + "\\n")
    replies.flush()
"""

# Code that makes two equal models, and compares tensors.
MODEL = """
import copy
from torch import nn

torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to("hpu")
other = copy.deepcopy(plain)

def same(one, two):
    return torch.equal(one.detach().cpu(), two.detach().cpu())
"""


class LazyProcess:
    """Runs code in lazy mode; ``torch`` and ``htcore`` are imported there."""

    def __init__(self) -> None:
        environment = {**os.environ, "HPU_MAGIC_SIMULATOR": "1", "PT_HPU_LAZY_MODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, code: str) -> list[str]:
        """Run code in a namespace of its own and return the lines that it printed."""
        self._process.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        self._process.stdin.flush()
        out, error = json.loads(self._process.stdout.readline())
        assert error is None, error
        return out.splitlines()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
