"""Execute the notebooks in parallel, and cache the results until a source changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from traitlets.config import Config

# Folders in the package that do not affect notebooks.
_BUILT = ("labextension", "__pycache__")
# Number of simultaneous kernels; each kernel uses one thread.
_TOGETHER = 2
# The notebooks that take longest, which are started first.
_LONG = ("before_the_card", "fine_tune", "multi_card", "object_detection")
# Notebooks that need a package beyond those of the tests; without it, they have no outputs.
_NEEDED = {"serve": "vllm"}


def executed(notebooks: Sequence[Path], environment: bytes, cache: Path) -> dict[str, Any]:
    """Return the executed notebooks by name.

    Parameters
    ----------
    notebooks : sequence of Path
        The notebook files, without outputs.
    environment : bytes
        A digest of the installed packages; all notebooks are executed again if it changes.
    cache : Path
        The folder of executed notebooks; outdated ones are deleted.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell without the tag for expected errors failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    files = {
        path.stem: cache / f"{path.stem}-{_key(path, environment)}.ipynb" for path in notebooks
    }
    for other in set(cache.iterdir()) - set(files.values()):
        other.unlink()
    missing = [path for path in notebooks if not files[path.stem].exists()]
    for path in [path for path in missing if not _can_run(path)]:
        shutil.copy(path, files[path.stem])
        missing.remove(path)
    missing.sort(key=lambda path: path.stem not in _LONG)
    if missing:
        print(f"Executing {len(missing)} notebooks, which takes a few minutes ...", flush=True)
    with ThreadPoolExecutor(_TOGETHER) as pool:
        for done in [pool.submit(_execute, path, files[path.stem]) for path in missing]:
            done.result()
    return {name: nbformat.read(file, as_version=4) for name, file in files.items()}


def _can_run(notebook: Path) -> bool:
    package = _NEEDED.get(notebook.stem)
    return package is None or find_spec(package) is not None


def _execute(source: Path, into: Path) -> None:
    """Execute a notebook in an empty folder, with private cards and settings."""
    from nbclient import NotebookClient

    started = time.monotonic()
    notebook = nbformat.read(source, as_version=4)
    with tempfile.TemporaryDirectory() as private:
        folders = {"cards": "HPU_MAGIC_CARDS_DIR", "ipython": "IPYTHONDIR", "logs": "HABANA_LOGS"}
        for folder in (*folders, "work"):
            Path(private, folder).mkdir(mode=0o700)
        client = NotebookClient(
            notebook,
            timeout=600,
            # Put sockets in the private folder, where other users cannot open them.
            config=Config(KernelManager={"transport": "ipc", "ip": str(Path(private, "kernel"))}),
            coalesce_streams=True,
            resources={"metadata": {"path": str(Path(private, "work"))}},
        )
        chosen = {name: str(Path(private, folder)) for folder, name in folders.items()}
        client.execute(env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **chosen})
    unfinished = into.with_suffix(".unfinished")
    nbformat.write(notebook, unfinished)
    unfinished.rename(into)
    print(f"{source.name}: executed in {time.monotonic() - started:.0f} s", flush=True)


def environment_of(package: Path) -> bytes:
    """Return a digest of a package's files and of all installed distributions."""
    digest = hashlib.sha256()
    for file in _files(package):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    for installed in sorted(f"{package.name}=={package.version}" for package in distributions()):
        digest.update(installed.encode() + b"\n")
    return digest.digest()


def _files(package: Path) -> Iterator[Path]:
    for file in sorted(package.rglob("*")):
        if file.is_file() and not set(file.relative_to(package).parts) & set(_BUILT):
            yield file


def _key(notebook: Path, environment: bytes) -> str:
    return hashlib.sha256(environment + notebook.read_bytes()).hexdigest()[:16]
