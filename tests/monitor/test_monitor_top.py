"""The command hpu-magic top."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from hpu_magic.monitor import CardReading, Holder, Snapshot
from hpu_magic.monitor.top import table

# As the installed script does.
RUN = """\
import sys
from importlib.metadata import entry_points
[script] = entry_points(group="console_scripts", name="hpu-magic")
sys.exit(script.load()())
"""
LEAVE = b"\x1b[?25h\x1b[?1049l"


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_CARDS", "2")
    monkeypatch.setenv("HPU_MAGIC_MEMORY", "4GiB")


def run(*arguments, code=RUN):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )


def test_json_is_one_snapshot():
    done = run("top", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads(done.stdout)
    assert seen["source"] == "simulator"
    assert abs(seen["time"] - time.time()) < 60
    assert [card["memory_total"] for card in seen["cards"]] == [4 << 30] * 2


def test_output_that_is_no_terminal_gets_one_table():
    done = run("top")
    heading, first, _ = done.stdout.splitlines()
    assert heading.split() == ["card", "name", "memory", "held", "by"]
    assert first.split()[:4] == ["0", "GAUDI2", "simulated", "0"]
    assert "\x1b" not in done.stdout


SECRET = "S3CRET"


@pytest.fixture
def holder(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from hpu_magic.simulator import cards; cards.acquire(); print(flush=True); input()"
    )
    call = [sys.executable, script.name, f"--token={SECRET}"]
    process = subprocess.Popen(
        call, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_own_processes_are_shown_with_their_arguments(holder):
    command = f"{os.path.basename(sys.executable)} train.py --token={SECRET}"
    assert command in run("top").stdout
    [found] = json.loads(run("top", "--json").stdout)["cards"][0]["holders"]
    assert (found["pid"], found["command"]) == (holder.pid, command)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_others_processes_are_shown_without_their_arguments(holder):
    code = """
        import os
        from hpu_magic import monitor
        from hpu_magic.monitor.processes import with_arguments
        from hpu_magic.monitor.top import table
        seen = monitor.snapshot()
        os.setresuid(65534, 0, 0)
        print(*table(with_arguments(seen)), table(with_arguments(seen, of_others=True)), sep="END")
    """
    done = run(code=textwrap.dedent(code))
    mine, everybodys = done.stdout.split("END")[1], done.stdout.split("END")[-1]
    assert "train.py (" in mine
    assert SECRET not in mine
    assert SECRET in everybodys


def test_works_without_torch():
    done = run("top", code=f"import sys\nsys.modules['torch'] = None\n{RUN}")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 3


def test_reader_that_has_seen_enough_is_no_error():
    command = '"$0" -c "$1" top --json | head -c 1; exit ${PIPESTATUS[0]}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, RUN], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_wrong_interval_is_refused_with_its_mend():
    done = run("top", "--interval", "soon")
    assert done.returncode == 2
    assert "'soon' is no interval; write a number of seconds from 0.2" in done.stderr


@pytest.mark.parametrize(("end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_terminal_is_given_back_when_the_program_ends(end, status):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", RUN, "top", "--interval", "0.2"])
    shown = b""
    while shown.count(b"GAUDI2") < 4:  # two cards, drawn twice
        assert select.select([terminal], [], [], 30)[0]
        shown += os.read(terminal, 4096)
    os.kill(pid, end)
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:
        pass  # the terminal ends with the program
    _, ended = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(ended) == status
    assert shown.endswith(LEAVE)
    assert b"Traceback" not in shown


CARD = CardReading(0, 4, "HL-225", "GAUDI2", False, 48 << 30, 96 << 30)


def test_what_no_card_has_gets_no_column_and_what_some_have_a_dash():
    warm = CardReading(1, 5, "HL-225", "GAUDI2", False, None, None, temperature=41.0)
    heading, first, second = table(Snapshot((CARD, warm), "hlml"))
    assert heading.split() == ["card", "name", "memory", "temp", "held", "by"]
    assert first.split() == [
        *("0", "HL-225", "48.0", "GiB", "/", "96.0", "GiB"),
        *("[#####.....]", "50%", "-", "-"),
    ]
    assert second.split() == ["1", "HL-225", "-", "41", "°C", "-"]


def test_every_holder_has_a_line_and_no_command_reaches_the_terminal_unseen():
    holders = (Holder(7, "python\x1b[2J train.py", "ann"), Holder(0, "a process elsewhere", None))
    card = CardReading(0, 4, "HL-225", "GAUDI2", False, None, None, holders=holders, error="Lost.")
    lines = table(Snapshot((card,), "hlml", "Card 9 is hidden."))
    assert lines[1].endswith("python?[2J train.py (pid 7, ann)")
    assert [line.strip() for line in lines[2:]] == [
        "a process elsewhere",
        "unknown: Lost.",
        "Card 9 is hidden.",
    ]


def test_nothing_to_show_says_why():
    assert table(Snapshot((), "none", "No driver.")) == ["No Gaudi cards to show: No driver."]
