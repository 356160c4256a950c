"""Functions that run in a worker to set its rank, transfer variables and report its state."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import sessions
from hpu_magic.errors import HPUError, suggestion
from hpu_magic.parallel import transfer
from hpu_magic.parallel.rank_reports import RankReports
from hpu_magic.runtime.training.ranks import RankState


@dataclass(frozen=True)
class Introduction:
    """The machine and process of a worker."""

    host: str
    pid: int


@dataclass(frozen=True)
class RankSettings:
    """A rank's settings; `folder` and `path` are None if the rank is on another machine."""

    environment: Mapping[str, str]  # torchrun's variables, the card and the notebook's flags
    folder: str | None  # the notebook's working directory
    path: Sequence[str] | None  # the notebook's module search path
    leader: str  # name of the notebook, or of its process


_reports: RankReports | None = None


def introduce() -> Introduction:
    """Return the machine and process of this worker."""
    return Introduction(socket.gethostname(), os.getpid())


def free_port() -> int:
    """Return a free port on this machine."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def become_rank(settings: RankSettings) -> list[str]:
    """Make this worker a rank, and load hpu_magic in it.

    Returns the list of modules that were imported before the rank was set. In a new worker, the
    list is empty.
    """
    global _reports
    from IPython.core.getipython import get_ipython

    os.environ.update(settings.environment)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    share = max(1, cores // int(os.environ["LOCAL_WORLD_SIZE"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(share))
    if settings.folder is not None and os.path.isdir(settings.folder):
        os.chdir(settings.folder)
    _look_in(settings.path)
    shell: Any = get_ipython()
    _let_cells_await(shell)
    sessions.name_this_process(f"rank {os.environ['RANK']} of {os.path.basename(settings.leader)}")
    shell.run_line_magic("load_ext", "hpu_magic")
    _reports = RankReports(shell, int(os.environ["RANK"]))
    _reports.begin()
    return [name for name in ("torch", "habana_frameworks") if name in sys.modules]


class _MainThread:
    """A substitute for the shell channel's thread, which an ipyparallel engine does not have.

    While a cell is awaiting something, ipykernel 7.2 and later use this thread to handle
    interrupts. The object is falsy, so that other code treats the thread as missing.
    """

    parent_thread = threading.main_thread()

    def __bool__(self) -> bool:
        return False


def _let_cells_await(shell: Any) -> None:
    """Support top-level ``await`` in cells; ipykernel would lose the replies of such cells."""
    kernel = shell.kernel
    if getattr(kernel, "shell_channel_thread", kernel) is not None:
        return  # this ipykernel does not use the thread, or the thread exists
    kernel.shell_channel_thread = _MainThread()
    kind = type(kernel)
    no_subshells = {"_supports_kernel_subshells": property(lambda _: False)}
    kernel.__class__ = type(kind.__name__, (kind,), no_subshells)


def rank() -> int | None:
    """Return the rank of this process, or None if it is not a worker."""
    return None if _reports is None else int(os.environ["RANK"])


def receive(payload: bytes, path: Sequence[str] | None) -> None:
    """Set variables sent by the notebook, whose ``sys.path`` is `path`.

    Raises
    ------
    HPUError
        This process cannot load the variables.
    """
    _look_in(path)
    _namespace().update(transfer.unpack(payload))


def send(names: Sequence[str]) -> bytes:
    """Serialize variables of this worker, to be sent to the notebook.

    Raises
    ------
    HPUError
        A variable does not exist, or its value cannot be sent.
    """
    namespace = _namespace()
    for name in names:
        if name not in namespace:
            visible = [known for known in namespace if not known.startswith("_")]
            fix = suggestion(name, visible) or "define it in a %%hpu_workers cell first."
            raise HPUError(f"Unknown variable {name!r} on this rank: {fix}")
    return transfer.pack({name: namespace[name] for name in names}, "cpu")


def state() -> RankState:
    """Return the state of this rank."""
    assert _reports is not None
    return _reports.state()


def in_group() -> bool:
    """Return whether this rank has joined a ``torch.distributed`` process group."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and bool(
        distributed.is_available() and distributed.is_initialized()
    )


def set_port(port: int) -> None:
    """Set the port for the next process group."""
    os.environ["MASTER_PORT"] = str(port)


def leave_group() -> bool:
    """Leave the process group, and return whether there was one."""
    joined = in_group()
    if joined:
        of_deepspeed = sys.modules.get("deepspeed.comm")
        if of_deepspeed is not None and of_deepspeed.is_initialized():
            of_deepspeed.destroy_process_group()  # also forgets DeepSpeed's own groups
        else:
            sys.modules["torch.distributed"].destroy_process_group()
    return joined


def _look_in(path: Sequence[str] | None) -> None:
    if path is not None:
        sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]


def _namespace() -> dict[str, Any]:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    namespace: dict[str, Any] = shell.user_ns
    return namespace
