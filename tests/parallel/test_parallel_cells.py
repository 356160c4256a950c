"""Cells on several ranks, in a real kernel with real workers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running_notebook import Notebook
from running_server import wait_for

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
zmq.Context.instance().socket(zmq.PUB).close()  # it has loops of its own, which stay
def loops():
    gc.collect()
    opened = [os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.lexists(one)]
    return len(threading.enumerate()), sum("eventpoll" in one for one in opened)
"""
JOINED = ["ranks 0 and 1\n  [3.0, 3.0]"]

# A rank says that its cell runs.
BEGUN = """import os, pathlib, time
pathlib.Path({!r}, f"{{os.environ['RANK']}} runs").touch()
"""


def begun(folder: Path) -> int:
    """Return how many ranks run `BEGUN`."""
    return len(list(folder.glob("* runs")))


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    notebook = Notebook(JPY_SESSION_NAME="/home/me/first.ipynb")
    notebook.run(f"%load_ext hpu_magic\n{LOOPS}\nbefore = loops()")
    started = notebook.run("%%hpu_workers --cards 2\nimport os\nrank = int(os.environ['RANK'])")
    assert started.texts == ["Starting 2 workers, one per card.\n"]
    yield notebook
    notebook.close()


def workers(notebook: Notebook) -> list[int]:
    lines = notebook.run("%hpu_workers").texts[0].splitlines()
    return [int(re.findall(r"\d+", line)[-1]) for line in lines[2:4]]


def test_each_worker_is_a_rank_as_torchrun_makes_it(notebook):
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


def test_the_notebook_leaves_its_workers_their_cards(notebook):
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


def test_cells_may_await(notebook, tmp_path):
    awaited = notebook.run(
        "%%hpu_workers\nimport asyncio\nawait asyncio.sleep(0.01)\n"
        "task = asyncio.get_running_loop().create_task(asyncio.sleep(0.01, 'slept'))"
    )
    assert awaited.outputs == []
    assert notebook.run("%%hpu_workers\nawait task").texts == ["ranks 0 and 1\n  'slept'"]
    with notebook.interrupted(0.2, once=lambda: begun(tmp_path) == 2):
        below = notebook.run(
            f"%%hpu_workers\n{BEGUN.format(str(tmp_path))}await asyncio.sleep(100)"
        )
    assert below.error.startswith("Interrupted on ranks 0 and 1.")


def test_data_that_a_cell_publishes_is_its_own(notebook):
    below = notebook.run(
        "%%hpu_workers\nfrom ipyparallel.engine.datapub import publish_data\n"
        "publish_data({'a': 1})\n'published'"
    )
    assert below.texts == ["ranks 0 and 1\n  'published'"]


def test_workers_start_no_workers(notebook):
    below = notebook.run("%%hpu_workers --ranks 1\n%hpu_workers on --cards 1")
    assert (
        "This is rank 1 of a notebook's workers, which cannot start workers: run this in the "
        "notebook."
    ) in below.error


def test_displays_of_ranks_are_their_own(notebook):
    below = notebook.run(
        "%%hpu_workers\nimport time\nfrom IPython.display import HTML, clear_output, display\n"
        "place = display(HTML(f'old {rank}'), display_id='same')\n"
        "time.sleep(0.1)\nplace.update(HTML(f'new {rank}'))"
    )
    shown = [one.data["text/html"] for one in below.outputs if "text/html" in one.data]
    assert sorted(shown) == ["new 0", "new 1"]


def test_what_was_cleared_gives_its_place(notebook):
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


def test_a_long_output_is_whole(notebook):
    below = notebook.run(
        "%%hpu_workers --ranks 1\nimport sys\ntext = ''.join(f'{n}\\n' for n in range(2000))\n"
        "for part in range(0, len(text), 2501):\n"
        "    print(text[part : part + 2501], end='', flush=True)\n    time.sleep(0.12)"
    )
    blocks = [text for text in below.texts if text.startswith("rank 1\n")]
    lines = [line for text in blocks for line in text.splitlines() if line != "rank 1"]
    assert len(blocks) > 1
    assert lines == [f"  {n}" for n in range(2000)]


def test_ranks_meet_and_stay_together_between_cells(notebook):
    assert notebook.run(JOIN).texts == JOINED
    again = notebook.run("%%hpu_workers\ndist.all_reduce(x)\nx.tolist()")
    assert again.texts == ["ranks 0 and 1\n  [6.0, 6.0]"]


def test_ranks_that_say_the_same_stand_together_and_lines_are_written_over(notebook):
    below = notebook.run(
        "%%hpu_workers\nimport sys\nfor n in range(3):\n    print(f'\\r{n} of 3', end='')\n"
        "print()\nprint('seen by all', file=sys.stderr)"
    )
    assert below.texts == ["ranks 0 and 1\n  2 of 3\n  seen by all"]


def test_a_picture_stands_below_the_name_of_its_rank(notebook):
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


def test_variables_go_there_and_come_back(notebook):
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


def test_tensors_of_a_class_of_their_own_come_back_to_the_host(notebook):
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


def test_what_cannot_be_sent_is_named(notebook):
    notebook.run("import threading\nlock = threading.Lock()")
    below = notebook.run("%%hpu_workers --push scale,lock\nprint('ran')")
    assert len(below.outputs) == 1
    assert "lock (a lock) cannot be sent to another process: TypeError" in below.texts[0]
    below = notebook.run("%%hpu_workers --output scales\npass")
    assert below.texts == [
        "UsageError: Rank 0: Unknown variable 'scales' on this rank: did you mean 'scale'?\n"
    ]


def test_what_the_notebook_can_import_its_workers_can(notebook, tmp_path):
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
        ("--cards 0", "%%hpu_workers --cards is 0: write 1 or more."),
        ("-n 3", "%%hpu_workers has no option '-n': type %%hpu_workers --cards 3"),
        ("off", "type %hpu_workers off (one %)."),
        ("--ranks 0,2", "Rank 2 does not exist: choose ranks from 0 to 1."),
        ("--ranks a", "'a' is not a list of numbers: write 0,2, for example."),
        ("--push nothing", "Unknown variable 'nothing'"),
        ("--grace -1", "--grace is -1: write 0 or more seconds."),
        ("--ranks 1 --foo", "%%hpu_workers has no option '--foo'"),
    ],
)
def test_what_is_wrong_with_the_line(notebook, line, sentence):
    below = notebook.run(f"%%hpu_workers {line}\nprint('ran')")
    assert len(below.texts) == 1
    assert sentence in below.texts[0]


def test_the_table_names_the_slowest_rank(notebook):
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
    _title, head, first, second, note = below.ranks.splitlines()
    assert head.split("  ")[1:2] == ["rank"]
    assert first.split()[:3] == ["0", "HPU", "0"]
    assert second.split()[:3] == ["1", "HPU", "1"]
    assert (first.count(" 40 "), second.count(" 40 ")) == (1, 1)
    assert not first.endswith("slowest")
    assert second.endswith("slowest")
    assert note.startswith("  Rank 1 is slowest:")


def test_one_rank_fails_and_the_others_do_not_wait_for_it(notebook):
    notebook.run(JOIN)
    below = notebook.run(
        "%%hpu_workers --grace 0.5\nif rank == 1:\n    raise ValueError('no data')\n"
        "dist.all_reduce(x)"
    )
    assert below.error.count("Traceback") == 1
    assert below.error.endswith(
        "Rank 1 raised ValueError: no data. Rank 0 was interrupted. The ranks have left their "
        "process group: the next cell may form a new one."
    )
    assert notebook.run(JOIN).texts == JOINED


def test_a_rank_that_cannot_leave_its_group_is_told(notebook):
    notebook.run(JOIN)
    notebook.run(
        "%%hpu_workers --ranks 1\nleave = dist.destroy_process_group\n"
        "dist.destroy_process_group = lambda: 1 / 0"
    )
    below = notebook.run("%%hpu_workers --ranks 0\nraise ValueError('no data')")
    assert below.error.endswith(
        "Rank 0 raised ValueError: no data. Rank 1 could not leave the process group. "
        "Run %hpu_workers restart to start all ranks again (their variables are lost)."
    )
    notebook.run("%%hpu_workers --ranks 1\ndist.destroy_process_group = leave\nleave()")
    assert notebook.run(JOIN).texts == JOINED


def test_a_rank_that_prints_without_a_pause_is_not_let_run_on(notebook):
    below = notebook.run(
        "%%hpu_workers --grace 0.5\nimport time\nif rank == 1:\n    raise ValueError('no data')\n"
        "for n in range(200):\n    print('.', end='', flush=True)\n    time.sleep(0.03)"
    )
    assert "Rank 1 raised ValueError: no data. Rank 0 was interrupted." in below.error


def test_a_backward_pass_does_not_wait_for_a_rank_that_failed(notebook):
    notebook.run(JOIN)
    below = notebook.run(
        "%%hpu_workers --grace 0.5\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to('hpu'))\n"
        "if rank == 1:\n    raise ValueError('no data')\n"
        "model(torch.ones(1, 2, device='hpu')).sum().backward()"
    )
    assert below.error.endswith(
        "Rank 1 raised ValueError: no data. Rank 0 was interrupted. The ranks have left their "
        "process group: the next cell may form a new one."
    )
    assert notebook.run(JOIN).texts == JOINED


def test_what_fails_on_all_ranks_is_told_once(notebook):
    below = notebook.run("%%hpu_workers\n1 / 0")
    assert below.error.count("Traceback") == 1
    assert "Ranks 0 and 1 raised ZeroDivisionError: division by zero." in below.error


def test_a_traceback_of_a_rank_names_the_notebooks_cell(notebook):
    notebook.run("shown = 1")
    notebook.run("%%hpu_workers\ndef divide():\n    return 1 / 0")
    number = notebook.number
    below = notebook.run("%%hpu_workers\ndivide()")
    plain = re.sub(r"\x1b\[[\d;]*m", "", below.error)
    assert re.findall(r"Cell In\[(\d+)\], line (\d)", plain) == [
        (str(number + 1), "2"),
        (str(number), "3"),
    ]


def test_ranks_that_fail_differently_are_told_in_turn(notebook, tmp_path):
    below = notebook.run(
        f"%%hpu_workers\nimport pathlib, time\nbegun = pathlib.Path({str(tmp_path / 'begun')!r})\n"
        "if rank == 0:\n    begun.touch()\n    raise KeyError('a')\n"
        "while not begun.exists():\n    time.sleep(0.02)\n"
        "time.sleep(0.5)\nraise OSError('b')"
    )
    assert "Rank 0 raised KeyError: 'a'. Rank 1 raised OSError after that." in below.error


def test_an_interrupt_reaches_the_ranks_and_variables_survive(notebook, tmp_path):
    notebook.run("%%hpu_workers\nkept = rank * 10")
    with notebook.interrupted(0.2, once=lambda: begun(tmp_path) == 2):
        below = notebook.run(f"%%hpu_workers\n{BEGUN.format(str(tmp_path))}time.sleep(100)")
    assert below.error.startswith("Interrupted on ranks 0 and 1.")
    assert notebook.run("%%hpu_workers\nkept").texts == ["rank 0\n  0\nrank 1\n  10"]


def test_two_interrupts_at_once_are_one(notebook, tmp_path):
    # Later ones may meet the kernel as it replies.
    with notebook.interrupted(0.2, 0.21, once=lambda: begun(tmp_path) == 2):
        below = notebook.run(f"%%hpu_workers\n{BEGUN.format(str(tmp_path))}time.sleep(100)")
    assert below.error.startswith("Interrupted on ranks 0 and 1.")
    assert "answer" not in below.error


@pytest.mark.parametrize("moments", [(0.2, 1.0), (0.2,)], ids=["twice", "in vain"])
def test_a_rank_that_takes_no_interrupt_is_told_and_waited_for(notebook, moments, tmp_path):
    notebook.run("from hpu_magic.parallel import run\nrun._INTERRUPT_SECONDS = 1.0")
    with notebook.interrupted(*moments, once=lambda: begun(tmp_path) == 1):
        below = notebook.run(
            "%%hpu_workers --ranks 1\nimport signal\n"
            f"before = signal.signal(signal.SIGINT, signal.SIG_IGN)\n{BEGUN.format(str(tmp_path))}"
            f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists():\n    time.sleep(0.05)\n"
            "signal.signal(signal.SIGINT, before)"
        )
    assert below.error == (
        "Interrupted on rank 1. Rank 1 does not respond to the interrupt. Run %hpu_workers restart "
        "to start all ranks again (their variables are lost)."
    )
    refused = notebook.run("%%hpu_workers\npass")
    assert refused.texts == [
        "UsageError: The previous cell still runs on rank 1: wait for it, or run "
        "%hpu_workers restart.\n"
    ]
    assert "busy with the previous cell" in notebook.run("%hpu_workers").texts[0]
    (tmp_path / "end").touch()
    wait_for(lambda: not notebook.run("%%hpu_workers\npass").outputs)
    notebook.run("run._INTERRUPT_SECONDS = 30.0")


def test_a_killed_rank_is_told_once_and_a_restart_mends_it(notebook):
    notebook.run(JOIN)
    before = workers(notebook)
    below = notebook.run(
        "%%hpu_workers\nimport os, signal\nif rank == 1:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(x)"
    )
    assert below.error.count("killed") == 1
    assert "Rank 1 was killed by SIGKILL. Rank 0 raised DistBackendError after that." in below.error
    assert below.error.endswith(
        "Run %hpu_workers restart to start all ranks again (their variables are lost)."
    )
    assert "was killed by SIGKILL" in notebook.run("%hpu_workers").texts[0]
    assert "Rank 1 has ended" in notebook.run("%%hpu_workers\npass").texts[0]
    assert notebook.run("%hpu_workers restart").texts[1].startswith("2 workers\n")
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert notebook.run(JOIN).texts == JOINED


# Ends with a rank when the other one ends too.
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


def test_workers_end_at_the_same_time_and_an_interrupt_stops_no_stop(notebook, tmp_path):
    notebook.run(MEET.format(folder=str(tmp_path)))
    assert len(psutil.Process(notebook.pid).children()) > 2
    with notebook.interrupted(0.2):
        below = notebook.run("%hpu_workers off")
    assert "KeyboardInterrupt" in below.error
    wait_for(lambda: not psutil.Process(notebook.pid).children())
    wait_for(lambda: notebook.run("loops() == before").texts == ["True"])
    ended = sorted(path.name for path in tmp_path.iterdir())
    assert ended == ["0 ends", "0 met the other", "1 ends", "1 met the other"]


def test_too_many_workers_are_refused_by_the_cards_there_are(notebook):
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
        "UsageError: 9 workers need 9 cards, but there are 8: pass --cards 8.\n"
    ]
    notebook.run("import torch\ntorch.ones(1, device='hpu')")
    below = notebook.run("%hpu_workers on --cards 8").texts[-1]
    assert "8 workers need 8 cards, but 7 of 8 are free" in below
    assert below.endswith(
        "You can release the card of this notebook with %hpu_restart, or pass --cards 7.\n"
    )
    assert notebook.run("%hpu_workers restart").texts == [
        "UsageError: No workers are running: start some with %hpu_workers on --cards N.\n"
    ]
    assert notebook.run("%hpu_workers --ranks 1").texts == [
        "UsageError: --ranks, --push and --output NAMES belong to code: write %%hpu_workers as the "
        "first line of a cell.\n"
    ]


def test_workers_end_with_a_kernel_that_is_killed():
    notebook = Notebook()
    notebook.run("%load_ext hpu_magic")
    notebook.run("%%hpu_workers --cards 1\npass")
    family = psutil.Process(notebook.pid).children(recursive=True)
    assert any("ipyparallel.engine" in " ".join(one.cmdline()) for one in family)
    # What it forked outlives it, and holds its pipes open.
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
