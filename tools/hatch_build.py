"""Put the JupyterLab extension, the server's settings and the start-up file into the wheel."""

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
    """Builds the extension unless it is there; a source archive brings it along."""

    def built(self) -> bool:
        """Whether the extension has been built."""
        return Path(self.root, EXTENSION, "package.json").exists()

    def dependencies(self) -> list[str]:
        """Return what building takes beside hatchling: jlpm, which comes with JupyterLab."""
        return [] if self.built() else ["jupyterlab>=4.2,<5"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build if needed and name the files that go to Jupyter's folders."""
        if self.target_name == "wheel":
            kind = "force_include_editable" if version == "editable" else "force_include"
            build_data[kind][f"tools/{STARTUP}"] = STARTUP
        if version == "editable":
            return  # `make` links them, so that a new build is seen at once
        if not self.built():
            if shutil.which("node") is None:
                raise RuntimeError("Building hpu_magic from its sources needs Node 18 or newer.")
            subprocess.run(
                [sys.executable, "tools/labextension.py", "build"], cwd=self.root, check=True
            )
        if self.target_name == "wheel":
            build_data["shared_data"] |= {
                EXTENSION: "share/jupyter/labextensions/hpu_magic",
                INSTALL_NOTE: "share/jupyter/labextensions/hpu_magic/install.json",
                SERVER_CONFIG: "etc/jupyter/jupyter_server_config.d/hpu_magic.json",
            }
