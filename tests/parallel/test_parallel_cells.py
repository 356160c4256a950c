"""Test cells on several ranks, in a real kernel with real workers."""

import os
import re
import signal

import psutil
import pytest
from running_notebook import Notebook
from started_process import wait_for

JOIN = """%%hpu_workers
import torch, habana_frameworks.torch.core
import torch.distributed as dist
if not dist.is_initialized():
    dist.init_process_group("hccl")
rank = dist.get_rank()
x = torch.full((2,), rank + 1.0, device="hpu")
dist.all_reduce(x)
print(x.tolist())
"""
LOOPS = """
import gc, os, threading, zmq
zmq.Context.instance().socket(zmq.PUB).close()  # its event loops remain
def loops():
    gc.collect()
    opened = [os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.lexists(one)]
    return len(threading.enumerate()), sum("eventpoll" in one for one in opened)
"""
JOINED = ["ranks 0 and 1\n  [3.0, 3.0]"]
RESTART = "Run %hpu_workers restart to restart all ranks (their variables are lost)."
WORK = {
    "a collective": "dist.all_reduce(x)",
    "a backward pass": "model(torch.ones(1, 2, device='hpu')).sum().backward()",
    "prints": "for n in range(200):\n    print('.', end='', flush=True)\n    time.sleep(0.03)",
}

# Reports that a rank is running its cell.
RUNS = """import os, pathlib, time
pathlib.Path({!r}, f"{{os.environ['RANK']}} runs").touch()
"""


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook(JPY_SESSION_NAME="/home/me/first.ipynb")
    notebook.run(f"%load_ext hpu_magic\n{LOOPS}\nbefore = loops()")
    started = notebook.run("%%hpu_workers --cards 2\nimport os\nrank = int(os.environ['RANK'])")
    assert started.texts == ["Starting 2 workers, one per card.\n"]
    yield notebook
    notebook.close()


@pytest.fixture
def interrupted(notebook, tmp_path):
    """Run a cell with `RUNS` and interrupt it while it runs on a number of ranks."""

    def run(cell, *moments, ranks=2):
        with notebook.interrupted(
            *moments, when=lambda: len(list(tmp_path.glob("* runs"))) == ranks
        ):
            return notebook.run(cell.replace("RUNS\n", RUNS.format(str(tmp_path))))

    return run


def workers(notebook):
    lines = notebook.run("%hpu_workers").texts[0].splitlines()
    return [int(re.findall(r"\d+", line)[-1]) for line in lines[2:4]]


def test_workers_have_the_environment_of_torchrun_ranks(notebook):
    names = (
        "('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'NODE_RANK', 'MASTER_ADDR', "
        "'HLS_MODULE_ID')"
    )
    below = notebook.run(
        f"%%hpu_workers\nimport os\nprint(*(os.environ[name] for name in {names}))\n"
        "os.getcwd() == os.environ['PWD'] or os.getcwd()"
    )
    place = f"'{os.getcwd()}'" if os.getcwd() != os.environ.get("PWD") else "True"
    assert below.texts == [
        f"rank 0\n  0 0 2 2 0 127.0.0.1 0\n  {place}\nrank 1\n  1 1 2 2 0 127.0.0.1 1\n  {place}"
    ]


def test_notebook_does_not_use_the_cards_of_its_workers(notebook):
    taken = notebook.run(
        "import torch\nfrom hpu_magic.runtime.device import device\n"
        "on_card = torch.ones(1, device='hpu')\ndevice.own_card().module_id"
    )
    assert taken.texts[-1] == "2"
    notebook.run(JOIN)
    named = notebook.run(
        "from hpu_magic import monitor\n"
        "[one.command for card in monitor.snapshot().cards for one in card.holders]"
    )
    assert named.texts == ["['rank 0 of first.ipynb', 'rank 1 of first.ipynb', 'first.ipynb']"]


def test_cells_of_ranks_can_await(notebook, interrupted):
    awaited = notebook.run(
        "%%hpu_workers\nimport asyncio\nawait asyncio.sleep(0.01)\n"
        "task = asyncio.get_running_loop().create_task(asyncio.sleep(0.01, 'slept'))"
    )
    assert awaited.outputs == []
    assert notebook.run("%%hpu_workers\nawait task").texts == ["ranks 0 and 1\n  'slept'"]
    below = interrupted("%%hpu_workers\nRUNS\nawait asyncio.sleep(100)", 0.2)
    assert below.error.startswith("Interrupted on ranks 0 and 1.")


def test_data_published_by_a_cell_does_not_disturb_its_output(notebook):
    below = notebook.run(
        "%%hpu_workers\nfrom ipyparallel.engine.datapub import publish_data\n"
        "publish_data({'a': 1})\n'published'"
    )
    assert below.texts == ["ranks 0 and 1\n  'published'"]


def test_workers_cannot_start_workers(notebook):
    below = notebook.run("%%hpu_workers --ranks 1\n%hpu_workers on --cards 1")
    assert (
        "This process is rank 1 of a notebook's workers and cannot start workers itself: run this "
        "in the notebook."
    ) in below.error


def test_display_ids_of_ranks_are_separate(notebook):
    below = notebook.run(
        "%%hpu_workers\nimport time\nfrom IPython.display import HTML, clear_output, display\n"
        "place = display(HTML(f'old {rank}'), display_id='same')\n"
        "time.sleep(0.1)\nplace.update(HTML(f'new {rank}'))"
    )
    shown = [output.data["text/html"] for output in below.outputs if "text/html" in output.data]
    assert sorted(shown) == ["new 0", "new 1"]


def test_cleared_output_is_replaced_in_place(notebook):
    below = notebook.run(
        "%%hpu_workers --ranks 0\nfor n in range(3):\n    clear_output(wait=True)\n"
        "    display(HTML(f'picture {n}'))\n    if n < 2:\n        display(HTML('second'))\n"
        "    print(n)\n    time.sleep(0.15)"
    )
    assert below.texts == [
        "rank 0",
        "<IPython.core.display.HTML object>",
        "rank 0",
        "",
        "rank 0\n  2",
    ]
    assert below.outputs[1].data["text/html"] == "picture 2"


def test_long_output_is_complete(notebook):
    below = notebook.run(
        "%%hpu_workers --ranks 1\nimport sys\ntext = ''.join(f'{n}\\n' for n in range(2000))\n"
        "for part in range(0, len(text), 2501):\n"
        "    print(text[part : part + 2501], end='', flush=True)\n    time.sleep(0.12)"
    )
    blocks = [text for text in below.texts if text.startswith("rank 1\n")]
    lines = [line for text in blocks for line in text.splitlines() if line != "rank 1"]
    assert len(blocks) > 1
    assert lines == [f"  {n}" for n in range(2000)]


def test_equal_output_of_ranks_is_grouped(notebook):
    below = notebook.run(
        "%%hpu_workers\nimport sys\nfor n in range(3):\n    print(f'\\r{n} of 3', end='')\n"
        "print()\nprint('seen by all', file=sys.stderr)"
    )
    assert below.texts == ["ranks 0 and 1\n  2 of 3\n  seen by all"]


def test_rich_output_appears_below_the_name_of_its_rank(notebook):
    below = notebook.run(
        "%%hpu_workers --ranks 1\nfrom IPython.display import HTML, display\n"
        "print('before')\ndisplay(HTML('<b>bold</b>'))\nprint('after')"
    )
    assert below.texts == [
        "rank 1\n  before",
        "rank 1",
        "<IPython.core.display.HTML object>",
        "rank 1\n  after",
    ]
    assert below.outputs[2].data["text/html"] == "<b>bold</b>"


def test_push_and_output_transfer_variables(notebook):
    notebook.run(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.layer = torch.nn.Linear(2, 1, bias=False)\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
        "net = Net().to('hpu')\ntorch.nn.init.ones_(net.layer.weight)\nscale = 3"
    )
    pushed = notebook.run(
        "%%hpu_workers --push net,scale --output y,rank\n"
        "y = net(torch.full((2,), rank + 1.0, device='hpu')) * scale\n"
        "print(next(net.parameters()).device, type(net).__name__)"
    )
    assert pushed.texts == ["ranks 0 and 1\n  hpu:0 Net"]
    back = notebook.run("[(one.device.type, one.tolist()) for one in y], rank")
    assert back.texts == ["([('cpu', [6.0]), ('cpu', [12.0])], [0, 1])"]


def test_tensor_subclasses_return_on_the_host(notebook):
    notebook.run(
        "class Labelled(torch.Tensor):\n    pass\n"
        "given = torch.ones(2, device='hpu').as_subclass(Labelled)\ngiven.label = 'a'"
    )
    below = notebook.run(
        "%%hpu_workers --push given --output given\n"
        "given = given + rank\ngiven.label = 'b'\ngiven.device"
    )
    assert below.texts == ["ranks 0 and 1\n  device(type='hpu', index=0)"]
    back = notebook.run(
        "[(type(one) is Labelled, one.device.type, one.tolist(), one.label) for one in given]"
    )
    assert back.texts == ["[(True, 'cpu', [1.0, 1.0], 'b'), (True, 'cpu', [2.0, 2.0], 'b')]"]


def test_error_names_variables_that_cannot_be_transferred(notebook):
    notebook.run("import threading\nlock = threading.Lock()")
    below = notebook.run("%%hpu_workers --push scale,lock\nprint('ran')")
    assert len(below.outputs) == 1
    assert "lock (a lock) cannot be sent to another process: TypeError" in below.texts[0]
    below = notebook.run("%%hpu_workers --output scales\npass")
    assert below.texts == [
        "UsageError: Rank 0: Unknown variable 'scales' on this rank: did you mean 'scale'?\n"
    ]


def test_workers_use_the_notebooks_import_path(notebook, tmp_path):
    (tmp_path / "of_the_notebook.py").write_text("class Kept:\n    pass\n")
    notebook.run(
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport of_the_notebook\n"
        "kept = of_the_notebook.Kept()"
    )
    below = notebook.run("%%hpu_workers --push kept\ntype(kept).__module__")
    assert below.texts == ["ranks 0 and 1\n  'of_the_notebook'"]
    below = notebook.run(
        "%%hpu_workers --ranks 1 --output made\nimport sys, types\n"
        "sys.modules['of_a_rank'] = types.ModuleType('of_a_rank')\n"
        "exec('class Made: pass', sys.modules['of_a_rank'].__dict__)\n"
        "made = sys.modules['of_a_rank'].Made()"
    )
    assert below.texts == [
        "UsageError: This process cannot load the variables: ModuleNotFoundError: No module "
        "named 'of_a_rank'\n"
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--cards 3", "2 workers are running, not 3: omit --cards, or end them first with"),
        ("--cards 0", "%%hpu_workers --cards must be at least 1, got 0."),
        ("-n 3", "%%hpu_workers has no option '-n': type %%hpu_workers --cards 3"),
        ("off", "type %hpu_workers off (one %)."),
        ("--ranks 0,2", "Rank 2 does not exist: choose ranks from 0 to 1."),
        ("--ranks a", "'a' is not a list of numbers: write 0,2, for example."),
        ("--push nothing", "Unknown variable 'nothing'"),
        ("--grace -1", "--grace must be at least 0 seconds, got -1."),
        ("--ranks 1 --foo", "%%hpu_workers has no option '--foo'"),
    ],
)
def test_invalid_line_reports_one_error(notebook, line, sentence):
    below = notebook.run(f"%%hpu_workers {line}\nprint('ran')")
    assert len(below.texts) == 1
    assert sentence in below.texts[0]


def test_rank_table_of_a_training_marks_the_slowest_rank(notebook):
    notebook.run(JOIN)
    below = notebook.run(
        "%%hpu_workers\nimport time\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to('hpu'))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for step in range(40):\n"
        "    time.sleep(0.12 if rank == 1 else 0.02)\n"
        "    model(torch.ones(4, 8, device='hpu')).sum().backward()\n"
        "    optimizer.step()"
    )
    rows = re.findall(r"^  (\d) +HPU (\d) .* 40 .*?(slowest)?$", below.ranks, re.MULTILINE)
    assert rows == [("0", "0", ""), ("1", "1", "slowest")]


def test_rank_table_shows_the_card_time_of_a_step(notebook):
    below = notebook.run(
        "%%hpu_workers\n%config HPUMagics.card_time = 'ideal'\nimport time, torch\n"
        "model = torch.nn.Linear(8, 8).to('hpu')\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for step in range(5):\n"
        "    time.sleep(0.3)\n"
        "    model(torch.ones(4, 8, device='hpu')).sum().backward()\n"
        "    optimizer.step()"
    )
    notebook.run("%%hpu_workers\n%config HPUMagics.card_time = 'off'")
    assert "card time of a step" in below.ranks
    times = re.findall(r" ([\d.]+) µs \(estimate: [\d.]+ µs to [\d.]+ µs\)", below.ranks)
    assert len(times) == 2
    assert times[0] == times[1]


def test_rank_table_shows_the_card_of_a_rank_that_ends_before_its_first_report(notebook):
    notebook.run("%%hpu_workers\nimport time, torch\ntorch.ones(4, device='hpu')")
    below = notebook.run(
        "%%hpu_workers\nkept = torch.ones(4, device='hpu')\ntime.sleep(0 if rank else 6)"
    )
    assert re.findall(r"^  (\d) +HPU (\d) ", below.ranks, re.MULTILINE) == [("0", "0"), ("1", "1")]


@pytest.mark.parametrize("work", WORK)
def test_failed_rank_interrupts_the_others(notebook, work):
    notebook.run(JOIN)
    below = notebook.run(
        "%%hpu_workers --grace 0.5\nimport time\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to('hpu'))\n"
        f"if rank == 1:\n    raise ValueError('no data')\n{WORK[work]}"
    )
    assert below.error.count("Traceback") == 1
    assert below.error.endswith(
        "Rank 1 raised ValueError: no data. Rank 0 was interrupted. The ranks have left their "
        "process group: the next cell can create a new one."
    )
    assert notebook.run(JOIN).texts == JOINED


def test_rank_that_cannot_leave_its_group_is_reported(notebook):
    notebook.run(JOIN)
    notebook.run(
        "%%hpu_workers --ranks 1\nleave = dist.destroy_process_group\n"
        "dist.destroy_process_group = lambda: 1 / 0"
    )
    below = notebook.run("%%hpu_workers --ranks 0\nraise ValueError('no data')")
    assert below.error.endswith(
        f"Rank 0 raised ValueError: no data. Rank 1 could not leave the process group. {RESTART}"
    )
    notebook.run("%%hpu_workers --ranks 1\ndist.destroy_process_group = leave\nleave()")
    assert notebook.run(JOIN).texts == JOINED


def test_same_error_on_all_ranks_is_shown_once(notebook):
    below = notebook.run("%%hpu_workers\n1 / 0")
    assert below.error.count("Traceback") == 1
    assert "Ranks 0 and 1 raised ZeroDivisionError: division by zero." in below.error


def test_traceback_of_a_rank_names_the_notebooks_cells(notebook):
    notebook.run("shown = 1")
    notebook.run("%%hpu_workers\ndef divide():\n    return 1 / 0")
    number = notebook.number
    below = notebook.run("%%hpu_workers\ndivide()")
    plain = re.sub(r"\x1b\[[\d;]*m", "", below.error)
    assert re.findall(r"Cell In\[(\d+)\], line (\d)", plain) == [
        (str(number + 1), "2"),
        (str(number), "3"),
    ]


def test_different_errors_are_listed_in_order_of_time(notebook, tmp_path):
    below = notebook.run(
        f"%%hpu_workers\nimport pathlib\nraised = pathlib.Path({str(tmp_path / 'raised')!r})\n"
        "import time\nif rank == 0:\n    raised.touch()\n    raise KeyError('a')\n"
        "while not raised.exists():\n    time.sleep(0.02)\n"
        "time.sleep(0.5)\nraise OSError('b')"
    )
    assert "Rank 0 raised KeyError: 'a'. Rank 1 raised OSError after that." in below.error


def test_interrupt_ends_the_cells_of_ranks_and_keeps_variables(notebook, interrupted):
    notebook.run("%%hpu_workers\nkept = rank * 10")
    below = interrupted("%%hpu_workers\nRUNS\ntime.sleep(100)", 0.2)
    assert below.error.startswith("Interrupted on ranks 0 and 1.")
    assert notebook.run("%%hpu_workers\nkept").texts == ["rank 0\n  0\nrank 1\n  10"]


def test_two_quick_interrupts_count_as_one(interrupted):
    # Later interrupts may reach the kernel while it replies.
    below = interrupted("%%hpu_workers\nRUNS\ntime.sleep(100)", 0.2, 0.21)
    assert below.error.startswith("Interrupted on ranks 0 and 1.")
    assert "answer" not in below.error


@pytest.mark.parametrize("moments", [(0.2, 1.0), (0.2,)], ids=["twice", "in vain"])
def test_rank_that_ignores_the_interrupt_is_reported(notebook, interrupted, moments, tmp_path):
    notebook.run("from hpu_magic.parallel import run\nrun._INTERRUPT_SECONDS = 1.0")
    below = interrupted(
        "%%hpu_workers --ranks 1\nimport signal\n"
        "before = signal.signal(signal.SIGINT, signal.SIG_IGN)\nRUNS\n"
        f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists():\n    time.sleep(0.05)\n"
        "signal.signal(signal.SIGINT, before)",
        *moments,
        ranks=1,
    )
    assert below.error == (
        f"Interrupted on rank 1. Rank 1 does not respond to the interrupt. {RESTART}"
    )
    refused = notebook.run("%%hpu_workers\npass")
    assert refused.texts == [
        "UsageError: The previous cell is still running on rank 1: wait for it, or run "
        "%hpu_workers restart.\n"
    ]
    assert "busy with the previous cell" in notebook.run("%hpu_workers").texts[0]
    (tmp_path / "end").touch()
    wait_for(lambda: not notebook.run("%%hpu_workers\npass").outputs)
    notebook.run("run._INTERRUPT_SECONDS = 30.0")


def test_killed_rank_is_reported_and_restart_replaces_it(notebook):
    notebook.run(JOIN)
    before = workers(notebook)
    below = notebook.run(
        "%%hpu_workers\nimport os, signal\nif rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)"
    )
    assert below.error.count("killed") == 1
    assert "Rank 1 was killed by SIGKILL. Rank 0 raised DistBackendError after that." in below.error
    assert below.error.endswith(RESTART)
    assert "was killed by SIGKILL" in notebook.run("%hpu_workers").texts[0]
    assert "Rank 1 has ended" in notebook.run("%%hpu_workers\npass").texts[0]
    assert notebook.run("%hpu_workers restart").texts[1].startswith("2 workers\n")
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert notebook.run(JOIN).texts == JOINED


# When a rank exits, it waits until the other rank exits.
MEET = """%%hpu_workers
import atexit, pathlib, time
folder = pathlib.Path({folder!r})
def meet():
    (folder / f"{{rank}} ends").touch()
    while len(list(folder.glob("* ends"))) < 2:
        time.sleep(0.02)
    (folder / f"{{rank}} met the other").touch()
atexit.register(meet)
"""


def test_workers_end_together_despite_an_interrupt(notebook, tmp_path):
    notebook.run(MEET.format(folder=str(tmp_path)))
    assert len(psutil.Process(notebook.pid).children()) > 2
    with notebook.interrupted(0.2):
        below = notebook.run("%hpu_workers off")
    assert "KeyboardInterrupt" in below.error
    wait_for(lambda: not psutil.Process(notebook.pid).children())
    wait_for(lambda: notebook.run("loops() == before").texts == ["True"])
    ended = sorted(path.name for path in tmp_path.iterdir())
    assert ended == ["0 ends", "0 met the other", "1 ends", "1 met the other"]


def test_commands_without_workers_report_cards_and_next_steps(notebook):
    assert notebook.run("%hpu_workers off").texts == ["No workers were running."]
    assert notebook.run("%hpu_workers").texts == [
        "No workers: %%hpu_workers --cards 4 starts four workers and runs its cell on them."
    ]
    assert notebook.run("os.environ.setdefault('HABANA_VISIBLE_MODULES', 'all')").texts == ["'all'"]
    assert notebook.run("%hpu_workers on --cards 2").texts[-1] == (
        "UsageError: HABANA_VISIBLE_MODULES='all' excludes all 8 cards: unset it, or set it to "
        "their module ids, separated by commas.\n"
    )
    notebook.run("del os.environ['HABANA_VISIBLE_MODULES']")
    assert notebook.run("%hpu_workers on --cards 9").texts == [
        "UsageError: 9 workers need 9 cards, but there are only 8: pass --cards 8.\n"
    ]
    notebook.run("import torch\ntorch.ones(1, device='hpu')")
    below = notebook.run("%hpu_workers on --cards 8").texts[-1]
    assert "8 workers need 8 cards, but only 7 of 8 are free" in below
    assert below.endswith(
        "You can release this notebook's card with %hpu_restart, or pass --cards 7.\n"
    )
    assert notebook.run("%hpu_workers restart").texts == [
        "UsageError: No workers are running: start some with %hpu_workers on --cards N.\n"
    ]
    assert notebook.run("%hpu_workers --ranks 1").texts == [
        "UsageError: --ranks, --push and --output NAMES require code to run: use %%hpu_workers as "
        "the first line of a cell.\n"
    ]


def test_workers_end_after_their_kernel_is_killed():
    notebook = Notebook()
    notebook.run("%load_ext hpu_magic")
    notebook.run("%%hpu_workers --cards 1\npass")
    family = psutil.Process(notebook.pid).children(recursive=True)
    assert any("ipyparallel.engine" in " ".join(each.cmdline()) for each in family)
    # A forked process survives the kernel and keeps its pipes open.
    forked = notebook.run(
        "import multiprocessing, time\n"
        "process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))\n"
        "process.start()\nprocess.pid"
    )
    orphan = psutil.Process(int(forked.texts[-1]))
    os.kill(notebook.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=100)
    orphan.kill()
    assert alive == []
    notebook.close()
