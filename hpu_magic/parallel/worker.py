"""What runs in a worker: it becomes a rank, takes variables and gives them, tells its state."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic import sessions
from hpu_magic.errors import RefusedError, suggestion
from hpu_magic.parallel import transfer
from hpu_magic.parallel.awaiting import let_cells_await
from hpu_magic.parallel.telling import Telling
from hpu_magic.runtime.measure.ranks import RankState


@dataclass(frozen=True)
class Introduction:
    """A worker before it has a rank: on which machine, and as which process."""

    host: str
    pid: int


@dataclass(frozen=True)
class Place:
    """What a worker needs to know to become a rank.

    Attributes
    ----------
    environment : dict of str to str
        Rank, sizes and rendezvous under torchrun's names, the card, and the notebook's flags.
    folder : str or None
        The notebook's working directory, on its own machine.
    path : list of str or None
        Where the notebook finds modules, on its own machine.
    leader : str
        The notebook, or its process where it has no name.
    """

    environment: Mapping[str, str]
    folder: str | None
    path: Sequence[str] | None
    leader: str


_telling: Telling | None = None


def introduce() -> Introduction:
    """Return who this worker is."""
    return Introduction(socket.gethostname(), os.getpid())


def free_port() -> int:
    """Return a port that nobody listens at on this machine."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def become_rank(place: Place) -> list[str]:
    """Make this worker a rank; the commands of ``%load_ext hpu_magic`` are there afterwards.

    Returns
    -------
    list of str
        What had been imported too early to know of its rank; empty in a fresh worker.
    """
    global _telling
    from IPython.core.getipython import get_ipython

    os.environ.update(place.environment)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    share = max(1, cores // int(os.environ["LOCAL_WORLD_SIZE"]))
    os.environ.setdefault("OMP_NUM_THREADS", str(share))
    if place.folder is not None and os.path.isdir(place.folder):
        os.chdir(place.folder)
    _look_in(place.path)
    shell: Any = get_ipython()
    let_cells_await(shell)
    sessions.name_this_process(f"rank {os.environ['RANK']} of {os.path.basename(place.leader)}")
    shell.run_line_magic("load_ext", "hpu_magic")
    _telling = Telling(shell, int(os.environ["RANK"]))
    _telling.begin()
    return [name for name in ("torch", "habana_frameworks") if name in sys.modules]


def rank() -> int | None:
    """Return this process's rank; None where it is no worker."""
    return None if _telling is None else int(os.environ["RANK"])


def receive(payload: bytes, path: Sequence[str] | None) -> None:
    """Take variables from the notebook, which finds modules in `path`.

    Raises
    ------
    RefusedError
        They cannot be made again here.
    """
    _look_in(path)
    _namespace().update(transfer.unpack(payload))


def send(names: Sequence[str]) -> bytes:
    """Return variables of this worker for the notebook.

    Raises
    ------
    RefusedError
        A name is not there, or its value cannot be sent.
    """
    namespace = _namespace()
    for name in names:
        if name not in namespace:
            visible = [known for known in namespace if not known.startswith("_")]
            mend = suggestion(name, visible) or "define it in a %%hpu_parallel cell first."
            raise RefusedError(f"There is no variable {name!r} on this rank: {mend}")
    return transfer.pack({name: namespace[name] for name in names}, "cpu")


def tell() -> RankState:
    """Return the state of this rank."""
    assert _telling is not None
    return _telling.state()


def in_group() -> bool:
    """Tell whether this rank has joined a process group of ``torch.distributed``."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and bool(
        distributed.is_available() and distributed.is_initialized()
    )


def meet_at(port: int) -> None:
    """Form the next process group at another port."""
    os.environ["MASTER_PORT"] = str(port)


def leave_group() -> bool:
    """Leave the process group, and tell whether there was one."""
    joined = in_group()
    if joined:
        sys.modules["torch.distributed"].destroy_process_group()
    return joined


def _look_in(path: Sequence[str] | None) -> None:
    if path is not None:
        sys.path[:] = [*path, *(one for one in sys.path if one not in path)]


def _namespace() -> dict[str, Any]:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    namespace: dict[str, Any] = shell.user_ns
    return namespace
