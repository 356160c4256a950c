"""A Python that has imported torch, of which each script gets a fork: the import takes seconds.

The device comes in behind the fork, by the entry point that ends every import of torch, so a script
chooses its environment as if it started by itself. One that comes to its end leaves as the forks of
`multiprocessing` do: with its threads joined and its exit handlers run, and no module taken apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST = 120
"""Seconds that a script may take."""

_LOOP = """
import atexit, gc, json, os, signal, sys, time

ended_well = False

@atexit.register
def leave():
    "Run behind all that a process does at its end, as the first that was registered."
    if ended_well:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # taking each module apart writes to all the pages that the fork shares

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
import torch._dynamo  # optimizers import it, compiling does, and in lazy mode some shapes do

gc.freeze()  # a collection would write to every page that a fork shares
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    if not asked["longest"]:
        print(child, flush=True)
        continue
    end = time.monotonic() + asked["longest"]
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    print(os.waitstatus_to_exitcode(ended[1]), flush=True)
else:
    sys.exit()

os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for descriptor in (1, 2):
    os.dup2(os.open(asked["outputs"][descriptor - 1], os.O_WRONLY), descriptor)
os.environ.clear()
os.environ.update(asked["environment"])
sys.argv = ["-c"]
if torch._is_device_backend_autoload_enabled():
    torch._import_device_backends()
exec(compile(asked["code"], "<string>", "exec"), {"__name__": "__main__"})
ended_well = True
"""


class ForkedPython:
    """Runs scripts, each in a fork."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, code: str, environment: Mapping[str, str]) -> str:
        """Return what the code prints on standard output; it must end well."""
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder, name) for name in ("out", "err")]
            status = self._ask(code, environment, outputs, LONGEST)
            out, err = (output.read_text() for output in outputs)
        assert status == "0", f"ended with {status or 'its parent'}: {err}"
        return out

    def start(self, code: str, environment: Mapping[str, str], said: Path) -> None:
        """Run the code beside what comes next; all that it prints goes to the file `said`."""
        self._ask(code, environment, [said, said], None)

    def _ask(
        self,
        code: str,
        environment: Mapping[str, str],
        outputs: Sequence[Path],
        longest: float | None,
    ) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for output in outputs:
            output.touch()
        asked = {
            "code": code,
            "environment": dict(environment),
            "outputs": [str(output) for output in outputs],
            "longest": longest,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the process that is forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
