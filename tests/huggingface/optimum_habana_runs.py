"""Programs in the environment of optimum-habana, which `make huggingface` creates."""

import functools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from started_process import completed

PYTHON = os.environ.get("HPU_MAGIC_TEST_OPTIMUM_HABANA", "")
FOLDER = Path(__file__).parent
in_both_modes = pytest.mark.parametrize("mode", ["eager", "lazy"])


@functools.cache
def results(program: str, mode: str) -> dict[str, Any]:
    """Run a program and return the results of its cases."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(PYTHON).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join((str(FOLDER), str(FOLDER.parents[1])))
    if mode != "cpu":
        environment["HPU_MAGIC_SIMULATOR"] = "1"
        environment["PT_HPU_LAZY_MODE"] = str(int(mode == "lazy"))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "results.json"
        path = FOLDER / "optimum_habana" / f"{program}.py"
        ran = completed(PYTHON, path, mode, place, env=environment, cwd=folder, timeout=280)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(place.read_text(encoding="utf-8"))
