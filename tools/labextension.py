"""Build and check the JupyterLab extension, and install it in this environment as a symbolic link.

Usage: labextension.py TASK..., where a task is build, link, check or test. Without Node, only
`link` works; the other tasks print a message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SOURCES = PROJECT / "labextension"
BUILT = PROJECT / "hpu_magic" / "labextension"
SERVER_CONFIG = PROJECT / "jupyter-config" / "jupyter_server_config.d" / "hpu_magic.json"
SCRIPTS = ("build", "check", "test")


def jlpm(*arguments: str) -> None:
    """Run JupyterLab's package manager in the source folder."""
    command = shutil.which("jlpm")
    if command is None:
        sys.exit("jlpm is not on PATH; install JupyterLab in this environment.")
    environment = os.environ | {"PYTHON": sys.executable}
    finished = subprocess.run([command, *arguments], cwd=SOURCES, env=environment, check=False)
    if finished.returncode:
        sys.exit(f"`jlpm {' '.join(arguments)}` failed in {SOURCES}; see its output.")


def fetched() -> bool:
    """Return whether the packages in the current yarn.lock are installed."""
    state = SOURCES / "node_modules" / ".yarn-state.yml"
    return state.exists() and state.stat().st_mtime >= (SOURCES / "yarn.lock").stat().st_mtime


def replace_by_link(link: Path, target: Path) -> None:
    """Make `link` point to `target`, and remove the files of an earlier installation."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(target, target_is_directory=target.is_dir())


def link() -> None:
    """Link the built extension and the server's configuration into Jupyter's folders."""
    data = Path(sysconfig.get_path("data"))
    if BUILT.exists():
        replace_by_link(data / "share/jupyter/labextensions/hpu_magic", BUILT)
    if SERVER_CONFIG.exists():
        folder = data / "etc/jupyter" / SERVER_CONFIG.parent.name
        replace_by_link(folder / SERVER_CONFIG.name, SERVER_CONFIG)


def main(tasks: list[str]) -> None:
    """Run the tasks in order."""
    if unknown := sorted(set(tasks) - {"link", *SCRIPTS}):
        sys.exit(f"Unknown task {unknown[0]!r}; the tasks are link, {', '.join(SCRIPTS)}.")
    node = shutil.which("node") is not None
    if not node and set(tasks) != {"link"}:
        print("Node (18 or newer) is missing: JupyterLab runs without the hpu_magic sidebar.")
    for task in tasks:
        if task == "link":
            link()
        elif node:
            if not fetched():
                jlpm("install", "--immutable")
            jlpm("run", task)


if __name__ == "__main__":
    main(sys.argv[1:])
