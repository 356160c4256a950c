"""Test workers launched by the documented IPython profile, with a local queue."""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from running_notebook import Notebook
from started_process import wait_for

DOCUMENT = Path(__file__).parents[2] / "docs" / "several_machines.md"
QUEUE = {
    # Runs the script of the job in the background; the job ID is the process ID.
    "sbatch": 'setsid "$1" > job.log 2>&1 < /dev/null &\necho "Submitted batch job $!"\n',
    "scancel": 'kill -- "-$1"\n',
    # Runs the number of tasks that the script requests; all tasks end together.
    "srun": (
        "tasks=$(sed -n 's/^#SBATCH --ntasks=//p' slurm_engine.sbatch)\n"
        'for task in $(seq "$tasks"); do "$@" & done\nwait\n'
    ),
}


@pytest.fixture
def queue(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in QUEUE.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(stat.S_IRWXU)
    return folder


@pytest.fixture
def notebook(queue, tmp_path, monkeypatch):
    example = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
    assert "c.Cluster.n = 16" in example
    profile = tmp_path / "ipython" / "profile_slurm"
    profile.mkdir(parents=True)
    (profile / "ipcluster_config.py").write_text(example.replace("n = 16", "n = 2"))
    monkeypatch.chdir(tmp_path)
    notebook = Notebook(
        PATH=f"{queue}{os.pathsep}{os.environ['PATH']}", IPYTHONDIR=str(profile.parent)
    )
    notebook.run("%load_ext hpu_magic")
    yield notebook
    notebook.close()


def test_profile_launches_workers_and_ends_their_job(notebook):
    started = notebook.run("%hpu_workers on --profile slurm")
    assert started.texts[0] == "Starting workers, by the profile slurm.\n"
    assert started.texts[1].startswith("2 workers of the profile slurm\n")
    pids = [int(pid) for pid in re.findall(r"(\d+)  idle", started.texts[1])]
    below = notebook.run(
        "%%hpu_workers\nimport os, torch, habana_frameworks.torch.core\n"
        "import torch.distributed as dist\ndist.init_process_group('hccl')\n"
        "x = torch.full((1,), dist.get_rank() + 1.0, device='hpu')\ndist.all_reduce(x)\n"
        "print(os.environ['LOCAL_RANK'], os.environ['NODE_RANK'], x.item())"
    )
    assert below.texts[-1] == "rank 0\n  0 0 3.0\nrank 1\n  1 0 3.0"
    assert re.fullmatch(r"Stopped \d+ workers?\.", notebook.run("%hpu_workers off").texts[-1])
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_unknown_profile_is_reported(notebook):
    below = notebook.run("%hpu_workers on --profile nowhere")
    assert below.texts[-1].startswith("UsageError: The profile 'nowhere' does not exist: ")
    assert "ipython profile create nowhere --parallel" in below.texts[-1]


def test_missing_queue_command_is_reported(notebook, queue):
    (queue / "sbatch").unlink()
    below = notebook.run("%hpu_workers on --profile slurm")
    assert below.texts[-1] == (
        "UsageError: The workers could not be launched: [Errno 2] No such file or directory: "
        "'sbatch'\n"
    )
    assert psutil.Process(notebook.pid).children() == []
    wait_for(lambda: not started_by(queue))


def started_by(queue):
    """Return ipyparallel's processes with the notebook's PATH."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PATH", "").startswith(f"{queue}{os.pathsep}"):
                found.append(process)
    return [each.pid for each in found if "ipyparallel" in " ".join(each.cmdline())]
