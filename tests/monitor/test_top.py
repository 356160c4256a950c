"""Test the command hpu-magic top."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import textwrap
import time
from contextlib import ExitStack, closing

import pytest
from started_process import completed, started, started_python

from hpu_magic.monitor import CardReading, Holder, Snapshot
from hpu_magic.monitor.top.cells import width
from hpu_magic.monitor.top.table import Order, headline, table
from hpu_magic.monitor.top.view import View

# Like the installed script.
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
    return completed(sys.executable, "-c", code, *arguments)


def test_json_is_one_snapshot():
    done = run("top", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads(done.stdout)
    assert seen["source"] == "simulator"
    assert abs(seen["time"] - time.time()) < 60
    assert [card["memory_total"] for card in seen["cards"]] == [4 << 30] * 2


def test_output_that_is_not_a_terminal_is_one_table(golden):
    golden("top", run("top").stdout)


SECRET = "S3CRET"


@pytest.fixture
def holder(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from hpu_magic.simulator import cards; cards.acquire(); print(flush=True); input()"
    )
    with started_python(script.name, f"--token={SECRET}", cwd=tmp_path) as process:
        yield process


def test_own_processes_have_their_arguments(holder):
    command = f"{os.path.basename(sys.executable)} train.py --token={SECRET}"
    assert command in run("top").stdout
    [found] = json.loads(run("top", "--json").stdout)["cards"][0]["holders"]
    assert (found["pid"], found["command"]) == (holder.pid, command)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_processes_of_other_users_have_no_arguments(holder):
    code = """
        import os
        from hpu_magic import monitor
        from hpu_magic.monitor.processes import with_arguments
        from hpu_magic.monitor.top.table import table
        seen = monitor.snapshot()
        os.setresuid(65534, 0, 0)
        print(*table(with_arguments(seen)), table(with_arguments(seen, of_others=True)), sep="END")
    """
    done = run(code=textwrap.dedent(code))
    own, all_users = done.stdout.split("END")[1], done.stdout.split("END")[-1]
    assert "train.py'" in own
    assert SECRET not in own
    assert SECRET in all_users


def test_top_works_without_torch():
    done = run("top", code=f"import sys\nsys.modules['torch'] = None\n{RUN}")
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_pipe_is_not_an_error():
    command = '"$0" -c "$1" top --json | head -c 1; exit ${PIPESTATUS[0]}'
    done = completed("bash", "-c", command, sys.executable, RUN)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_invalid_interval_is_rejected_with_a_fix():
    done = run("top", "--interval", "soon")
    assert done.returncode == 2
    assert "'soon' is not a valid interval; use a number of seconds from 0.2" in done.stderr


class Terminal:
    """The command in a new terminal with a specified width."""

    def __init__(self, columns, *arguments, code=RUN):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", code, "top", *arguments])
        self._shown = ""
        self.resize(columns)

    def resize(self, columns, rows=16):
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, size)

    def press(self, keys):
        os.write(self.descriptor, keys.encode())

    def wait_for(self, condition):
        """Return the lines of the first complete screen for which a condition is true."""
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            whole = [part for part in self._shown.split("\x1b[H") if part.endswith("\x1b[J")]
            for part in whole:
                lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part).split("\r\n")
                if condition("\n".join(lines)):
                    # The next call examines only later screens.
                    self.selected = re.findall(r"\x1b\[7m *HPU ([0-9]+)", part)
                    self._shown = ""
                    return lines
            if select.select([self.descriptor], [], [], 1)[0]:
                self._shown += os.read(self.descriptor, 65536).decode()
        raise AssertionError(f"The screen did not appear: {self._shown[-3000:]!r}")

    def end(self):
        """Return the exit status of the program and its last output."""
        try:
            while more := os.read(self.descriptor, 4096):
                self._shown += more.decode()
        except OSError:
            pass  # the terminal ends with the program
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        self.pid = None
        return os.waitstatus_to_exitcode(status), self._shown

    def close(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            self.end()


@pytest.fixture
def terminal():
    with ExitStack() as opened:
        yield lambda *arguments, **options: opened.enter_context(
            closing(Terminal(*arguments, **options))
        )


@pytest.fixture
def kernel(tmp_path):
    """The session of a notebook with a long name that holds a card."""
    code = """
        from hpu_magic import sessions
        from hpu_magic.simulator import cards
        session = sessions.Announcement("/first 東京 with a rather long name.ipynb", running=True)
        cards.acquire(); print(flush=True); input()
    """
    with started(code) as process:
        yield process


@pytest.mark.parametrize(
    ("columns", "kept", "dropped"),
    [
        (40, ("idle",), ("memory", "model", "user")),
        (60, ("idle", "memory"), ("user",)),
        (80, ("idle", "memory", "model", "user"), ()),
        (120, ("idle", "memory", "model", "user"), ()),
    ],
)
def test_pid_and_name_are_shown_at_each_width(terminal, holder, kernel, columns, kept, dropped):
    lines = terminal(columns).wait_for(lambda text: "2 in use" in text)
    assert max(map(width, lines)) <= columns
    heading = lines[2].split()
    assert [name for name in (*kept, *dropped) if name in heading] == list(kept)
    script, notebook = lines[3], lines[4]
    assert "2 simulated GAUDI2 cards, 2 in use" in lines[0]
    assert str(holder.pid) in script.split()
    assert str(kernel.pid) in notebook.split()
    assert "busy" in notebook.split()
    assert script.split(str(holder.pid))[1].split("python")[0].split() in ([], ["-"], ["root", "-"])
    name = "first 東京 with a rather long name.ipynb"
    shown = notebook[notebook.index("first") :]
    assert shown == name or (len(shown) > 5 and name.startswith(shown[:-1]) and shown[-1] == "…")
    if columns == 120:
        assert shown == name


def test_resized_terminal_is_redrawn_immediately(terminal, kernel):
    one = terminal(120, "--interval", "600")
    wide = one.wait_for(lambda text: "1 in use" in text)
    one.resize(40)
    narrow = one.wait_for(lambda text: "1 in use" in text and "memory" not in text)
    assert max(map(width, wide)) > 40 >= max(map(width, narrow))


@pytest.fixture
def fitting():
    """A session that holds a card and runs a fit until it receives a line of input."""
    code = """
        from hpu_magic import sessions
        from hpu_magic.simulator import cards
        session = sessions.Announcement("/first.ipynb", running=True)
        fit = sessions.PublishedFit()
        fit.update(
            sessions.Fit(
                "DigitReader", began=1.0, phase="training", epoch=3, epochs=10, share=0.274,
                remaining=40.2, rate=42.0, loss=0.231
            )
        )
        cards.acquire(); print(flush=True); input(); fit.withdraw(); input()
    """
    with started(code) as process:
        yield process


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_fit_is_shown_at_each_width_and_on_the_page_of_its_card(terminal, fitting, columns):
    one = terminal(columns, "--interval", "0.2")
    lines = one.wait_for(lambda text: "1 in use" in text)
    heading, row = lines[2], lines[3]
    column = heading.index("fit")
    assert row[column:].startswith("27 %, 40 s  ")
    assert row.rstrip().endswith("  first.ipynb")
    assert max(map(width, lines)) <= columns

    one.press("0")
    page = one.wait_for(lambda text: "DigitReader" in text)
    text = " ".join(" ".join(page).split())
    assert "DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left" in text
    room = columns - 2
    assert f"  [{'#' * round(0.274 * (room - 2)):.<{room - 2}}]" in page
    assert max(map(width, page)) <= columns

    fitting.stdin.write("\n")
    fitting.stdin.flush()
    one.wait_for(lambda text: "first.ipynb" in text and "DigitReader" not in text)
    one.press("\x1b")
    lines = one.wait_for(lambda text: "held by\n" in text)
    assert "fit" not in lines[2].split()


def test_json_has_fits(fitting):
    [holder] = json.loads(run("top", "--json").stdout)["cards"][0]["holders"]
    fit = holder["fit"]
    assert (fit["model"], fit["epoch"], fit["share"], fit["stoppable"]) == (
        *("DigitReader", 3, 0.274, False),
    )


@pytest.mark.parametrize("keys", ["q", "Q", "\x1b", "\x03"])
def test_keys_that_quit_restore_the_terminal(terminal, keys):
    one = terminal(80)
    before = termios.tcgetattr(one.descriptor)
    one.wait_for(lambda text: "GAUDI2" in text)
    one.press(keys)
    status, shown = one.end()
    assert status == (130 if keys == "\x03" else 0)
    assert shown.endswith(LEAVE.decode())
    assert before[3] & termios.ICANON


@pytest.mark.parametrize("up", ["\x1b[A", "\x1bOA"])
def test_arrows_select_a_card_and_enter_shows_it(terminal, kernel, up):
    one = terminal(60)
    one.wait_for(lambda text: "1 in use" in text)
    assert one.selected == []
    one.press("\x1b[B")
    one.wait_for(lambda text: True)
    assert one.selected == ["0"]
    one.press(f"\x1b[B\x1b[B{up}\r")
    lines = one.wait_for(lambda text: f"pid {kernel.pid}" in text)
    text = "\n".join(lines)
    assert "HPU 0  GAUDI2" in text
    assert f"pid {kernel.pid}" in text
    assert "first 東京 with a rather long name.ipynb" in text
    assert max(map(width, lines)) <= 60
    one.press("1")
    one.wait_for(lambda text: "HPU 1" in text and "no visible holder" in text)
    one.press("\x1b")
    one.wait_for(lambda text: "held by\n" in text)
    assert one.selected == ["1"]


def test_h_shows_the_keys_and_any_key_closes_the_help(terminal):
    one = terminal(60)
    one.wait_for(lambda text: "GAUDI2" in text)
    for key in ("h", "?", "\x1bOP"):
        one.press(key)
        text = "\n".join(one.wait_for(lambda text: "reverse the order" in text))
        for word in ("q ", "Enter", "↑ ↓", "← →", "h ?"):
            assert word in text
        one.press("x")
        one.wait_for(lambda text: "held by" in text)


def test_keys_change_the_sort_order(terminal, holder, kernel):
    one = terminal(60, "--sort", "idle")
    lines = one.wait_for(lambda text: "2 in use" in text)
    assert [line.split()[1] for line in lines[3:5]] == ["1", "0"]
    one.press(">>")
    lines = one.wait_for(lambda text: "by name" in text)
    assert [line.split()[1] for line in lines[3:5]] == ["1", "0"]
    one.press("r")
    lines = one.wait_for(lambda text: "reversed" in text)
    assert [line.split()[1] for line in lines[3:5]] == ["0", "1"]


@pytest.mark.parametrize(("end", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_terminal_is_restored_after_a_signal(terminal, end, status):
    one = terminal(80, "--interval", "0.2")
    for _ in range(2):
        one.wait_for(lambda text: "GAUDI2" in text)
    os.kill(one.pid, end)
    code, shown = one.end()
    assert code == status
    assert shown.endswith(LEAVE.decode())
    assert "Traceback" not in shown


def test_keys_work_while_the_driver_hangs(terminal):
    hung = "import time\nfrom hpu_magic import monitor\nmonitor.snapshot = lambda: time.sleep(600)"
    one = terminal(80, code=f"{hung}\n{RUN}")
    one.wait_for(lambda text: "Looking for cards" in text)
    one.press("q")
    assert one.end()[0] == 0


def test_single_card_is_printed_without_a_terminal(kernel):
    done = run("top", "0")
    assert done.stdout.startswith("HPU 0  GAUDI2\n")
    assert f"pid {kernel.pid}" in done.stdout
    [card] = json.loads(run("top", "--json", "1").stdout)["cards"]
    assert card["module_id"] == 1
    missing = run("top", "7")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "hpu-magic: this machine has no HPU 7; it has HPU 0, HPU 1.\n"


CARD = CardReading(0, 4, "HL-225", "GAUDI2", False, 48 << 30, 96 << 30)


def texts(snapshot, *arguments):
    return [line.text for line in table(snapshot, *arguments)]


def test_tables_show_known_values_holders_and_reasons(golden):
    warm = CardReading(1, 5, "HL-225", "GAUDI2", False, None, None, temperature=41.0)
    holders = (Holder(7, "python\x1b[2J train.py", "ann"), Holder(0, "a process elsewhere", None))
    lost = CardReading(0, 4, "HL-225", "GAUDI2", False, None, None, holders=holders, error="Lost.")
    simulated = CardReading(
        0, 0, "GAUDI2", "GAUDI2", True, 0, 64 << 20, holders=(Holder(1, "", None),)
    )
    snapshots = {
        "unknown memory": Snapshot((CARD, warm), "hlml"),
        "lost card": Snapshot((lost,), "hlml", "Card 9 is hidden."),
        "simulated cards": Snapshot((simulated,) * 2, "simulator"),
        "no card": Snapshot((), "none", "No driver."),
    }
    for name, snapshot in snapshots.items():
        lines = [headline(snapshot), *texts(snapshot)] if snapshot.cards else texts(snapshot)
        golden("top_tables", "\n".join(lines), section=name, varying=False)


def test_narrow_tables_drop_columns_in_order():
    card = CardReading(
        *(0, 4, "HL-225", "GAUDI2", False, 48 << 30, 96 << 30),
        utilization=41.0,
        temperature=38.0,
        power=310.0,
        clock=1650.0,
        holders=(Holder(1234567, "first.ipynb", "ada", 7300.0),),
    )
    seen = Snapshot((card,), "hlml")
    for room in range(30, 140):
        heading, row = texts(seen, room)
        assert width(row) <= room
        assert "pid" in heading.split()
        assert "1234567" in row
        assert "first" in row
        order = ["full", "idle", "busy", "memory", "model", "user", "temp", "power", "clock"]
        names = [name for name in order if name in heading.split()]
        assert names == order[: len(names)]
        # No column is dropped if there is room for it.
        assert ("clock" in heading) == (room >= width(texts(seen)[1]))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("card", [0, 1, 2, 3]),
        ("memory", [1, 2, 0, 3]),
        ("idle", [2, 1, 0, 3]),
        ("pid", [2, 0, 1, 3]),
        ("name", [1, 0, 2, 3]),
        ("busy", [0, 1, 2, 3]),
    ],
)
def test_sorted_cards_end_with_unknown_values(by, expected):
    def card(index, used, *holders):
        return CardReading(index, index, "", None, False, used, 96 << 30, holders=holders)

    cards = (
        card(0, 1, Holder(7, "b.ipynb", None, 0.0)),
        card(1, 9, Holder(8, "a.ipynb", None, 60.0)),
        # If a card has several holders, the idle time of the most active one counts.
        card(2, 5, Holder(9, "x.ipynb", None, 9000.0), Holder(5, "c.py", None)),
        card(3, None),
    )
    assert [card.index for card in Order(by).sort(cards)] == expected
    known = [index for index in expected if index != 3]
    reversed_order = [card.index for card in Order(by, reverse=True).sort(cards)]
    assert reversed_order == ([*known[::-1], 3] if by not in ("card", "busy") else reversed_order)
    if by == "card":
        assert reversed_order == [3, 2, 1, 0]


def test_table_scrolls_with_the_selection():
    cards = tuple(
        CardReading(index, index, "HL-225", "GAUDI2", False, 0, 96 << 30) for index in range(8)
    )
    view = View(Order())
    view.show(Snapshot(cards, "hlml"))

    def shown():
        lines = view.lines(60, 8)
        assert len(lines) == 8
        return [int(text.split()[1]) for text, _ in lines[3:-1]]

    assert shown() == [0, 1, 2, 3]
    for _ in range(6):
        view.press("down")
        shown()
    assert shown() == [2, 3, 4, 5]
    view.press("end")
    assert shown() == [4, 5, 6, 7]
    view.press("home")
    assert shown() == [0, 1, 2, 3]
