"""Test cells on several ranks in which ``deepspeed.initialize`` fails, hangs or is interrupted."""

import importlib.util

import pytest
from running_notebook import Notebook

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed"
)

DEFINE = """%%hpu_workers --cards 2
import os, signal, time, torch, deepspeed
from deepspeed.runtime.engine import DeepSpeedEngine
rank, configure = int(os.environ["RANK"]), DeepSpeedEngine._configure_optimizer

def initialize(batch=2, before=lambda: None):
    def first(*args):
        if rank == 1:
            before()
        return configure(*args)
    DeepSpeedEngine._configure_optimizer = first
    model = torch.nn.Linear(4, 4)
    optimizer = {"type": "AdamW", "params": {"torch_adam": True}}
    config = {
        "train_batch_size": batch, "optimizer": optimizer, "zero_optimization": {"stage": 3}
    }
    engine = deepspeed.initialize(model=model, config=config)[0]
    print(f"rank {engine.global_rank} has {engine.device.type}")

def fail():
    raise ValueError("no optimizer")

def wait():
    open(os.environ["WAITS"], "w").close()
    time.sleep(60)

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""
AGAIN = "The ranks have left their process group: the next cell can create a new one."
INITIALIZE = "%%hpu_workers --grace 0.5\ninitialize({})"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("places") / "waits"


@pytest.fixture(scope="module")
def notebook(place):
    notebook = Notebook(JPY_SESSION_NAME="/home/me/zero.ipynb", WAITS=str(place))
    notebook.run("%load_ext hpu_magic")
    notebook.run(DEFINE)
    yield notebook
    notebook.close()


def initialize(notebook):
    below = notebook.run(INITIALIZE.format(""))
    for rank in range(2):
        assert f"rank {rank} has hpu" in "".join(below.texts), below


def test_indivisible_batch_is_one_error(notebook):
    below = notebook.run(INITIALIZE.format("5").replace("--grace 0.5", "--grace 60"))
    assert below.error.count("Traceback") == 1
    sentence = "Ranks 0 and 1 raised AssertionError: Check batch related parameters."
    assert sentence in below.error
    assert "5 != 2 * 1 * 2" in below.error
    assert below.error.endswith(AGAIN)
    initialize(notebook)


def test_failed_rank_ends_the_initialization_of_the_others(notebook):
    below = notebook.run(INITIALIZE.format("2, fail"))
    reason = "Rank 1 raised ValueError: no optimizer. Rank 0 was interrupted."
    assert below.error.endswith(f"{reason} {AGAIN}")
    initialize(notebook)


def test_interrupted_initialization_can_be_repeated(notebook, place):
    with notebook.interrupted(0.5, when=place.exists):
        below = notebook.run(INITIALIZE.format("2, wait"))
    assert below.error.endswith(f"Interrupted on ranks 0 and 1. {AGAIN}")
    initialize(notebook)


def test_killed_rank_ends_the_initialization_until_a_restart(notebook):
    below = notebook.run(INITIALIZE.format("2, die"))
    assert "Rank 1 was killed by SIGKILL. Rank 0 " in below.error
    assert "Run %hpu_workers restart" in below.error
    restarted = notebook.run("%hpu_workers restart")
    assert restarted.texts[1].startswith("2 workers\n"), restarted
    notebook.run(DEFINE.replace(" --cards 2", ""))
    initialize(notebook)
