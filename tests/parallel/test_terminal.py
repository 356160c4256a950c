"""Test cells on several ranks from a terminal."""

import os
import re
import sys

import psutil
from started_process import completed

SESSION = """
%load_ext hpu_magic
cell = "import os\\nprint('pid', end='')\\nos.getpid()"
get_ipython().run_cell_magic("hpu_workers", "--cards 2", cell)
"""


def test_terminal_session_labels_lines_and_ends_its_workers(tmp_path):
    settings = {**os.environ, "IPYTHONDIR": str(tmp_path)}
    command = sys.executable, "-m", "IPython", "--colors=NoColor", "-c", SESSION
    ran = completed(*command, env=settings, check=True)
    lines = [line for line in ran.stdout.splitlines() if "SIMULATED" not in line]
    assert lines[0] == "Starting 2 workers, one per card."
    rest = [re.sub(r"\d{2,}", "N", line) for line in sorted(lines[1:])]
    assert rest == ["[0] N", "[0] pid", "[1] N", "[1] pid"]
    pids = [int(pid) for pid in re.findall(r"\d{2,}", "\n".join(lines[1:]))]
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert ran.stderr == ""
