"""Test the SLURM script in docs/examples, with replacements for SLURM's commands."""

import os
import shutil
import subprocess

import pytest
from installed_project import EXAMPLES, environment
from started_process import completed

SCRIPT = EXAMPLES / "slurm.sh"
ALL = pytest.mark.skipif(
    not os.environ.get("HPU_MAGIC_TEST_ALL_EXAMPLES"), reason="make examples runs it"
)
# Starts the tasks of a step on this machine; if a task fails, the others end.
SRUN = """
import subprocess, time
options = {}
words = sys.argv[1:]
while words[0].startswith("--"):
    name, _, value = words.pop(0)[2:].partition("=")
    options[name] = value
tasks = int(options.get("ntasks", os.environ["SLURM_NTASKS"]))
started = [
    subprocess.Popen(words, env={
        **os.environ, "SLURM_NTASKS": str(tasks),
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank),
    })
    for rank in range(tasks)
]
while any(one.poll() is None for one in started):
    if "kill-on-bad-exit" in options and any(one.poll() for one in started):
        for one in started:
            one.kill()
    time.sleep(0.01)
sys.exit(max(abs(one.returncode) for one in started))
"""
WELL = "assert sys.argv[1:] == ['doctor']\nprint('well', flush=True)"
SCONTROL = """
assert sys.argv[1:] == ["show", "hostnames", "localhost,other"]
print("localhost\\nother")
"""
PRINTS = """
import os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
line = " ".join(["task", *(os.environ[name] for name in names), *sys.argv[1:]])
os.write(1, f"{line}\\n".encode())  # one write, because other ranks write too
"""
ADDS = """
import torch, torch.distributed as dist
import habana_frameworks.torch.distributed.hccl
dist.init_process_group("hccl")
ones = torch.ones(2, device="hpu") * dist.get_rank()
dist.all_reduce(ones)
import os
os.write(1, f"sum {ones.tolist()}\\n".encode())
"""


def submitted(tmp_path, tasks, *arguments, programs=None, **variables):
    """Run the script as a job."""
    environ = environment(
        tmp_path, {"srun": SRUN, "scontrol": SCONTROL, "hpu-magic": WELL, **(programs or {})}
    )
    environ |= {
        "SLURM_NTASKS": str(tasks),
        "SLURM_NNODES": "1",
        "SLURM_JOB_ID": "12345678",
        "SLURM_JOB_NODELIST": "localhost,other",
        **variables,
    }
    return completed("bash", SCRIPT, *arguments, cwd=tmp_path, env=environ, timeout=200)


def test_script_passes_shellcheck():
    assert subprocess.run(["bash", "-n", SCRIPT], check=False).returncode == 0
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_tasks_are_ranks_and_the_doctor_runs_first(tmp_path):
    (tmp_path / "train.py").write_text(PRINTS)
    done = submitted(tmp_path, 2, "train.py", "--epochs", "two words")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "well"
    assert sorted(line for line in lines if line.startswith("task")) == [
        f"task {rank} {rank} 2 2 localhost 25678 --epochs two words" for rank in (0, 1)
    ]


def test_red_findings_prevent_the_start(tmp_path):
    (tmp_path / "train.py").write_text(PRINTS)
    sick = {"hpu-magic": "assert sys.argv[1:] == ['doctor']\nprint('red')\nsys.exit(1)"}
    done = submitted(tmp_path, 2, "train.py", programs=sick)
    assert (done.returncode, done.stdout) == (1, "red\n")
    assert done.stderr == "slurm.sh: fix the problems above; nothing was started.\n"


def test_missing_script_prints_the_usage(tmp_path):
    done = submitted(tmp_path, 1)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: sbatch [options] slurm.sh SCRIPT [arguments]\n"


@ALL
@pytest.mark.parametrize("cards", [1, 8])
def test_ranks_exchange_tensors(tmp_path, cards):
    (tmp_path / "train.py").write_text(ADDS)
    done = submitted(tmp_path, cards, "train.py", HPU_MAGIC_SIMULATOR="1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    total = float(sum(range(cards)))
    assert [line for line in done.stdout.splitlines() if line.startswith("sum")] == [
        f"sum {[total, total]}"
    ] * cards


@ALL
def test_failed_rank_ends_the_others(tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, sys, time\nsys.exit(3) if os.environ['RANK'] == '1' else time.sleep(100)"
    )
    done = submitted(tmp_path, 2, "train.py")
    assert done.returncode != 0
