"""Add the JupyterLab extension, the server's configuration and the startup file to the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXTENSION = "hpu_magic/labextension"
INSTALL_NOTE = "labextension/install.json"
SERVER_CONFIG = "jupyter-config/jupyter_server_config.d/hpu_magic.json"
STARTUP = "hpu_magic_simulator.pth"


class JupyterFiles(BuildHookInterface):
    """Builds the extension unless it already exists, as it does in a source archive."""

    def built(self) -> bool:
        """Return whether the extension has been built."""
        return Path(self.root, EXTENSION, "package.json").exists()

    def dependencies(self) -> list[str]:
        """Return the build requirements besides hatchling; JupyterLab provides jlpm."""
        return [] if self.built() else ["jupyterlab>=4.2,<5"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the extension if necessary, and add the files for Jupyter's folders."""
        if self.target_name == "wheel":
            kind = "force_include_editable" if version == "editable" else "force_include"
            build_data[kind][f"tools/{STARTUP}"] = STARTUP
        if version == "editable":
            return  # `make` creates links, so a new build is visible immediately
        if not self.built():
            if shutil.which("node") is None:
                raise RuntimeError("Building hpu_magic from source requires Node 18 or newer.")
            subprocess.run(
                [sys.executable, "tools/labextension.py", "build"], cwd=self.root, check=True
            )
        if self.target_name == "wheel":
            build_data["shared_data"] |= {
                EXTENSION: "share/jupyter/labextensions/hpu_magic",
                INSTALL_NOTE: "share/jupyter/labextensions/hpu_magic/install.json",
                SERVER_CONFIG: "etc/jupyter/jupyter_server_config.d/hpu_magic.json",
            }
