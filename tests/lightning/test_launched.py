"""Test scripts that Lightning starts once per card, and whose processes end together."""

import os
import re
import signal
import subprocess
import sys

import pytest
from started_process import completed, is_running, wait_for

pytestmark = pytest.mark.once

NET = """
import os
import sys
from pathlib import Path

import PLUGINS
import NAMESPACE as L
import torch

PLACE = Path(sys.argv[1])


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 2)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, index):
        self.log("loss", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


rows = torch.utils.data.TensorDataset(torch.arange(64.0).view(16, 4) / 64)
loader = torch.utils.data.DataLoader(rows, batch_size=4)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=2,
             enable_model_summary=False)
"""

SCRIPT = (
    NET
    + """
if __name__ == "__main__":
    trainer = L.Trainer(accelerator="hpu", devices=2, **quiet)
    model = Net()
    trainer.fit(model, loader)
    (measured,) = L.Trainer(strategy="hpu_ddp", devices=2, **quiet).validate(model, loader)
    rank = trainer.global_rank
    module = os.environ["HLS_MODULE_ID"]
    result = module, trainer.world_size, trainer.global_step, measured["loss"]
    (PLACE / str(rank)).write_text(repr(result))
    (PLACE / f"pid-{rank}").write_text(str(os.getpid()))

    class Failing(Net):
        def training_step(self, batch, index):
            if rank == 1 and index == 1:
                raise ValueError("no such batch")
            return super().training_step(batch, index)

    L.Trainer(accelerator="hpu", devices=2, **quiet).fit(Failing(), loader)
"""
)


def launched(folder, code, before=(), **environment):
    path = folder / "train.py"
    path.write_text(code)
    settings = {
        **os.environ,
        "HPU_MAGIC_SIMULATOR": "1",
        "HPU_MAGIC_CARDS_DIR": str(folder / "cards"),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    return completed(sys.executable, *before, path, folder, env=settings, timeout=200)


def test_script_runs_on_two_cards_and_ends_with_one_error(tmp_path, monkeypatch):
    from hpu_magic.simulator import cards

    code = SCRIPT.replace("NAMESPACE", "lightning.pytorch").replace("PLUGINS", "lightning_habana")
    started = ["-m", "hpu_magic.lightning"]
    done = launched(tmp_path, code, before=started, HABANA_VISIBLE_MODULES="5,3")
    results = [(tmp_path / str(rank)).read_text() for rank in range(2)]
    module, size, steps, loss = eval(results[0])
    assert (module, size, steps) == ("5", 2, 4)
    assert results[1] == repr(("3", size, steps, loss))
    err = done.stderr
    assert done.returncode == 1, err
    assert err.count("ValueError: no such batch") == 1
    assert err.count("Traceback (most recent call last)") == 1
    first, second = ((tmp_path / f"pid-{rank}").read_text() for rank in range(2))
    # A rank whose connection is closed may need a moment to end. A rank that is still running when
    # rank 0 ends is killed.
    ended = (rf"rank 1 \(process {second}\) ended during the call\.", "a rank has left the group")
    assert re.search(
        rf"^\[rank0\]: DistBackendError: .* failed on rank 0 \(process {first}\): "
        rf"({'|'.join(ended)})",
        err,
        re.M,
    ), err
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    assert [card.module_id for card in cards.snapshot() if card.holder] == []


SPAWNED = (
    NET
    + """
from hpu_magic.lightning.namespaces import plugins

if __name__ == "__main__":
    classes = plugins("NAMESPACE")
    strategy = classes.HPUParallelStrategy(
        start_method="spawn", checkpoint_io=classes.HPUCheckpointIO()
    )
    trainer = L.Trainer(
        devices=1,
        strategy=strategy,
        plugins=[classes.HPUPrecisionPlugin("32-true")],
        **quiet,
    )
    model = Net()
    trainer.fit(model, loader)
    total = sum(float(each.detach().sum()) for each in model.parameters())
    (PLACE / "result").write_text(f"{trainer.state.finished} {total != 0} {model.device}")
"""
)


def test_spawned_processes_use_the_plug_ins_of_their_distribution(tmp_path):
    pytest.importorskip("pytorch_lightning")
    done = launched(
        tmp_path,
        SPAWNED.replace("NAMESPACE", "pytorch_lightning").replace("PLUGINS", "hpu_magic.lightning"),
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "result").read_text() == "True True cpu"


def test_program_without_a_file_is_refused(forked_script):
    err = forked_script(
        """
        import lightning.pytorch as L
        import hpu_magic.lightning
        from lightning.pytorch.demos.boring_classes import BoringModel
        trainer = L.Trainer(accelerator="hpu", logger=False, enable_checkpointing=False)
        print(trainer.num_devices, type(trainer.strategy).__name__)
        try:
            trainer.fit(BoringModel())
        except ValueError as refusal:
            print(refusal)
        """,
        simulated=True,
    )
    assert err.splitlines()[-2:] == [
        "8 HPUParallelStrategy",
        "devices=8 runs the script once per card, but this program is not in a file: save it to a "
        "file, or start the processes with torchrun.",
    ]


WATCHED = """
import os, subprocess, sys, time
from hpu_magic.lightning.processes import watch

watch._COLLECTIVE /= 30

def wait_here():
    time.sleep(100)

if len(sys.argv) > 1:
    while os.path.exists("late"):
        time.sleep(0.05)
    watch.watch_from_child()
    open(f"{os.getpid()}.begun", "w").close()
    exec(sys.argv[1])
else:
    with watch.begun_by_this() as pipe:
        children = [subprocess.Popen([sys.executable, __file__, code]) for code in CHILDREN]
    print(*(child.pid for child in children), flush=True)
    watch.watch_from_parent(children, pipe)
    PARENT
"""


HOOK = """
import sys
sys.excepthook = lambda kind, error, trace: print("mine:", error, file=sys.stderr)
"""


def watched(folder, children, parent, hook=False):
    path = folder / "watched.py"
    (folder / "temporary").mkdir()
    code = WATCHED.replace("CHILDREN", repr(children)).replace("PARENT", parent)
    path.write_text((HOOK if hook else "") + code)
    return subprocess.Popen(
        [sys.executable, str(path)],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_hanging_first_rank_prints_its_stack_after_another_rank_ended(tmp_path):
    process = watched(tmp_path, ["sys.exit(3)", "wait_here()"], "wait_here()")
    out, err = process.communicate(timeout=100)
    first, second = map(int, out.split())
    assert process.returncode == -signal.SIGKILL
    assert f"Rank 1 (process {first}) ended with exit code 3. Rank 0 (process {process.pid})" in err
    assert "in wait_here" in err
    assert not is_running(second)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_error_of_the_first_rank_ends_the_others(tmp_path):
    process = watched(tmp_path, ["wait_here()"], "raise ValueError('no such batch')")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.count("Traceback") == 1
    assert "wait_here" not in err
    assert not is_running(int(out))


def test_missing_rank_prints_its_stack(tmp_path):
    late = "import torch.distributed as d; raise d.DistBackendError('rank 1 is missing')"
    process = watched(tmp_path, ["wait_here()"], late)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    lines = err[err.index("DistBackendError") :].splitlines()
    assert lines[0] == "DistBackendError: rank 1 is missing"
    assert lines[1] == f"Rank 1 (process {out.strip()}) is being killed; its stack:"
    assert "in wait_here" in err
    assert not is_running(int(out))


@pytest.mark.parametrize("late", [False, True])
def test_ranks_end_when_the_first_rank_is_killed(tmp_path, late):
    if late:  # rank 0 is killed before the other rank starts
        (tmp_path / "late").touch()
    process = watched(tmp_path, ["wait_here()"], "wait_here()")
    pid = int(process.stdout.readline())
    if not late:
        wait_for(lambda: (tmp_path / f"{pid}.begun").exists())
    process.kill()
    process.wait()
    (tmp_path / "late").unlink(missing_ok=True)
    wait_for(lambda: not is_running(pid))
    assert list((tmp_path / "temporary").iterdir()) == []
    process.communicate(timeout=60)


def test_ranks_killed_together_leave_no_files(tmp_path):
    process = watched(tmp_path, ["wait_here()"], "wait_here()")
    pid = int(process.stdout.readline())
    wait_for(lambda: (tmp_path / f"{pid}.begun").exists())
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_ranks_can_continue_after_the_first_rank_succeeded(tmp_path):
    work = "time.sleep(2); open(f'{os.getpid()}.done', 'w').close()"
    parent = "while not all(os.path.exists(f'{c.pid}.begun') for c in children): time.sleep(0.05)"
    process = watched(tmp_path, [work, work], parent)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    for pid in out.split():
        wait_for(lambda pid=pid: not is_running(int(pid)))
        assert (tmp_path / f"{pid}.done").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_rank_ends_with_the_first_rank_that_has_forked(tmp_path):
    """Other ranks must not mistake a fork of rank 0 for rank 0."""
    parent = "os.fork(); wait_here()"
    process = watched(tmp_path, ["wait_here()"], parent)
    pid = int(process.stdout.readline())
    wait_for(lambda: (tmp_path / f"{pid}.begun").exists())
    process.kill()
    process.wait()
    wait_for(lambda: not is_running(pid))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)


def test_excepthook_of_the_script_is_called(tmp_path):
    parent = "raise ValueError('no such batch')"
    process = watched(tmp_path, ["pass"], parent, hook=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "mine: no such batch" in err.splitlines()
    assert "Traceback" not in err
