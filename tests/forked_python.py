"""Scripts in forks of a process that has imported torch, because the import takes seconds.

The device is loaded after the fork by torch's entry point for backends, so that each script has its
own environment. At its end, a script joins its threads and runs its exit handlers, like a fork of
`multiprocessing`, but does not tear down modules.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import psutil

LONGEST = 120
"""Time limit of a script in seconds."""

_LOOP = """
import atexit, contextlib, fcntl, gc, importlib, importlib.machinery, importlib.metadata, json
import os, runpy, select, socket, sys, tempfile, weakref

finished = False

@atexit.register
def leave():
    "Run last, because this exit handler was registered first."
    if finished:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # tearing down modules would write to all pages that the fork shares

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
gc.disable()  # collections take an eighth of the time that the imports take
import torch
import torch._dynamo  # imported by optimizers, compilation and some shapes in lazy mode
# Imported by the first compilation
import torch._functorch.aot_autograd, torch._inductor.decomposition
import torch.fx.experimental.optimization

# Slow imports of Lightning, transformers, torch and hpu_magic that do not depend on the environment
slow = "torchmetrics", "PIL.Image", "regex", "jinja2", "yaml", "tabulate", "psutil", *sys.argv[2:]
for name in slow:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

# Forks need not unregister torch's operators at exit, or list the times of their compilations.
for finalizer in list(weakref.finalize._registry):
    finalizer.atexit = False
atexit.unregister(torch._dynamo.utils.dump_compile_times)

# Finding these reads the metadata of all packages.
backends = importlib.metadata.entry_points(group="torch.backends")

gc.freeze()  # a collection would write to every page that a fork shares
gc.enable()
requests = socket.socket(fileno=int(sys.argv[1]))
running = {}

def send(reply, number):
    with contextlib.suppress(BrokenPipeError):  # nobody waits for the fork
        os.write(reply, number.to_bytes(8, "little", signed=True))

def close(files):
    for file in files:
        os.close(file)

def load_backends():
    "Do the same as `torch._import_device_backends`."
    if torch._is_device_backend_autoload_enabled():
        for backend in backends:
            backend.load()()

class Hidden:
    "Finder that hides a package until the program imports it, like in a new process."

    def __init__(self, package):
        self.package, self.spec = sys.modules[package], sys.modules[package].__spec__
        names = [name for name in sys.modules if name.partition(".")[0] == package]
        self.modules = {name: sys.modules.pop(name) for name in names}
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name == self.spec.name:
            spec = importlib.machinery.ModuleSpec(name, self, origin=self.package.__file__)
            spec.submodule_search_locations = self.package.__path__
            return spec

    def create_module(self, spec):
        return self.package

    def exec_module(self, module):
        sys.meta_path.remove(self)
        module.__spec__ = self.spec
        sys.modules.update(self.modules)
        if module is torch:
            load_backends()

def next_fork():
    "Fork for each request, and return the request and its files in the fork."
    while True:
        for ready in select.select([requests, *running], [], [])[0]:
            if ready is not requests:
                child, reply = running.pop(ready)
                send(reply, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                close([ready, reply])
                continue
            request, files, _, _ = socket.recv_fds(requests, 1 << 20, 16)
            if not request:
                sys.exit()
            child = os.fork()
            if child == 0:
                return json.loads(request), files
            reply, *others = files
            send(reply, child)
            close(others)
            running[os.pidfd_open(child)] = child, reply

request, files = next_fork()
requests.close()
for each, (_, reply) in running.items():
    close([each, reply])
copies = [fcntl.fcntl(each, fcntl.F_DUPFD, 512) for each in files[1:]]
close(files)
for copy, number in zip(copies, request["numbers"], strict=True):
    os.dup2(copy, number)
close(copies)
if request["session"]:
    os.setsid()
os.chdir(request["folder"])
os.environ.clear()
os.environ.update(request["environment"])
tempfile.tempdir = None  # depends on the environment
if "transformers" in sys.modules:  # imported by torchmetrics
    Hidden("transformers")
if request["hides_torch"]:
    Hidden("torch")
sys.stdout.reconfigure(write_through="PYTHONUNBUFFERED" in os.environ)
sys.argv = request["arguments"]
if sys.argv[0] == "-m":
    sys.path[0] = os.getcwd()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    if not request["hides_torch"]:
        load_backends()
    if sys.argv[0] == "-c":
        exec(compile(sys.argv.pop(1), "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
finished = True
"""


class Fork:
    """A forked process, with the same methods as `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, replies: int) -> None:
        self._replies = replies
        self._lock = threading.Lock()
        self.pid = self._read()
        self._status: int | None = None

    def _read(self) -> int:
        reply = os.read(self._replies, 8)
        assert reply, "the process that forks has ended"
        return int.from_bytes(reply, "little", signed=True)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status; raise `subprocess.TimeoutExpired` if the process still runs."""
        if self._status is None and not select.select([self._replies], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("fork", timeout or 0.0)
        with self._lock:
            if self._status is None:
                self._status = self._read()
        return self._status

    def poll(self) -> int | None:
        """Return the exit status, or None if the process still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """End the process."""
        self.send_signal(signal.SIGTERM)

    def __del__(self) -> None:
        os.close(self._replies)


class ForkedPython:
    """Runs each script in a fork."""

    def __init__(self, *imported: str, requests: socket.socket | None = None) -> None:
        """Start the process that forks, or use the process of another instance.

        Forks have imported the modules `imported`.
        """
        self._process: subprocess.Popen[bytes] | None = None
        if requests is not None:
            self.requests = requests
            return
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LOOP, str(number), *imported],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
            )

    def __call__(
        self, code: str, environment: Mapping[str, str], *, hides_torch: bool = False
    ) -> str:
        """Return the standard output of the code, which must exit with status 0."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            fork = self.popen(
                ["", "-c", code], env=environment, stdout=out, stderr=err, hides_torch=hides_torch
            )
            try:
                status: int | str = fork.wait(LONGEST)
            except subprocess.TimeoutExpired:
                fork.kill()
                status = fork.wait()
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        assert status == 0, f"ended with {status}: {texts[1]}"
        return texts[0]

    def start(
        self, code: str, environment: Mapping[str, str], out: BinaryIO, err: BinaryIO
    ) -> Fork:
        """Start the code in the background."""
        return self.popen(["", "-c", code], env=environment, stdout=out, stderr=err)

    def popen(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: Any = None,
        stderr: Any = None,
        pass_fds: Sequence[int] = (),
        start_new_session: bool = False,
        cwd: str | None = None,
        hides_torch: bool = False,
    ) -> Fork:
        """Start a Python command like `subprocess.Popen`, but in a fork without standard input.

        With `hides_torch`, the program can set up its environment before it imports torch.
        """
        assert stdin == subprocess.DEVNULL
        request = {
            "arguments": list(command[1:]),
            "environment": dict(env),
            "folder": cwd or os.getcwd(),
            "hides_torch": hides_torch,
            "numbers": [1, 2, *pass_fds],
            "session": start_new_session,
        }
        with open(os.devnull, "wb") as null:
            outputs = [
                null.fileno() if file == subprocess.DEVNULL else _descriptor(file, number)
                for number, file in enumerate((stdout, stderr), 1)
            ]
            replies, reply = os.pipe()
            text = json.dumps(request).encode()
            socket.send_fds(self.requests, [text], [reply, *outputs, *pass_fds])
            os.close(reply)
        fork = Fork(replies)
        with suppress(ProcessLookupError):
            while start_new_session and os.getsid(fork.pid) != fork.pid:
                time.sleep(0.001)
        return fork

    def kernel(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None = None,
        pass_fds: Sequence[int] = (),
        **_: Any,
    ) -> Fork:
        """Start a kernel like `jupyter_client.launcher.launch_kernel`."""
        return self.popen(
            command,
            env={**env, "JPY_PARENT_PID": str(os.getpid())},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
            hides_torch=True,
        )

    def kernel_with_engines(self, command: Sequence[str], **options: Any) -> Fork:
        """Start a kernel whose ipyparallel engines are forks, too."""
        number = self.requests.fileno()
        forking = str(Path(__file__).with_name("forking_kernel.py"))
        return self.kernel(
            [command[0], forking, str(number), *command[1:]], pass_fds=[number], **options
        )

    def close(self) -> None:
        """End the process that forks, unless another instance started it."""
        self.requests.close()
        if self._process is not None:
            self._process.terminate()  # it may still be importing, or be shared with a lost process
            self._process.wait()

    def has_forked(self, pid: int) -> bool:
        """Return whether a process is a running fork."""
        with suppress(psutil.NoSuchProcess):
            return self._process is not None and psutil.Process(pid).ppid() == self._process.pid
        return False


def _descriptor(file: Any, default: int) -> int:
    """Return the descriptor of an open file or number; None means the default."""
    if file is None:
        return default
    return file if isinstance(file, int) else int(file.fileno())
