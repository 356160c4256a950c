"""Scripts in forks of a process that has imported torch, because the import takes seconds.

The device is loaded after the fork by torch's entry point for backends, so that each script has its
own environment. When a script ends, it joins its threads and runs its exit handlers, like a fork of
`multiprocessing`, but does not tear down modules.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST = 120
"""Time limit of a script in seconds."""

_LOOP = """
import atexit, gc, json, os, signal, sys, time

finished = False

@atexit.register
def leave():
    "Run last, because this exit handler was registered first."
    if finished:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # tearing down modules would write to all pages that the fork shares

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
import torch._dynamo  # imported by optimizers, compilation and some shapes in lazy mode

gc.freeze()  # a collection would write to every page that a fork shares
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    if not request["longest"]:
        print(child, flush=True)
        continue
    end = time.monotonic() + request["longest"]
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    print(os.waitstatus_to_exitcode(ended[1]), flush=True)
else:
    sys.exit()

os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for descriptor in (1, 2):
    os.dup2(os.open(request["outputs"][descriptor - 1], os.O_WRONLY), descriptor)
os.environ.clear()
os.environ.update(request["environment"])
sys.argv = ["-c"]
if torch._is_device_backend_autoload_enabled():
    torch._import_device_backends()
exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
finished = True
"""


class ForkedPython:
    """Runs each script in a fork."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, code: str, environment: Mapping[str, str]) -> str:
        """Return the standard output of the code, which must exit with status 0."""
        with tempfile.TemporaryDirectory() as folder:
            outputs = [Path(folder, name) for name in ("out", "err")]
            status = self._request(code, environment, outputs, LONGEST)
            out, err = (output.read_text() for output in outputs)
        assert status == "0", f"ended with {status or 'its parent'}: {err}"
        return out

    def start(self, code: str, environment: Mapping[str, str], output: Path) -> None:
        """Start the code in the background; it prints to the file `output`."""
        self._request(code, environment, [output, output], None)

    def _request(
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
        request = {
            "code": code,
            "environment": dict(environment),
            "outputs": [str(output) for output in outputs],
            "longest": longest,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        """End the forked process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
