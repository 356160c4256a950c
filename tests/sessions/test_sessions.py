"""Test the published state of interactive sessions: notebooks and idle times."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from jupyter_client.manager import start_new_kernel
from started_process import started, wait_for

from hpu_magic import holders, private_folder, program_name, sessions

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
STRANGER = 54321


def name_of(pid):
    return program_name.program_name(pid, sessions.session(pid))


@pytest.fixture
def announce(own_folder):
    announcements = []

    def begin(notebook="/notebooks/first.ipynb", *, running=False):
        announcements.append(sessions.Announcement(notebook, running=running))
        return announcements[-1]

    yield begin
    for announcement in announcements:
        announcement.withdraw()


@pytest.fixture(scope="module")
def kernel():
    """A kernel without a Jupyter server, like the kernels of VS Code."""
    manager, client = start_new_kernel(kernel_name="python3")
    client.execute_interactive("__vsc_ipynb_file__ = '/home/ada/deep/first.ipynb'", timeout=60)
    client.execute_interactive("%load_ext hpu_magic", timeout=60)
    yield client, manager.provisioner.pid
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_kernel_without_a_server_publishes_notebook_and_idle_time(kernel):
    client, pid = kernel
    assert sessions.session(pid).notebook == "/home/ada/deep/first.ipynb"
    assert (
        program_name.program_name(pid, sessions.session(pid))
        == program_name.full_command(pid)
        == "first.ipynb"
    )

    client.execute("import time; time.sleep(2)")
    wait_for(lambda: sessions.session(pid).idle == 0)
    assert holders.holder(pid).described() == "first.ipynb, busy"
    wait_for(lambda: sessions.session(pid).idle > 0.3)
    holder = holders.holder(pid)
    assert holder.described() == "first.ipynb, idle"
    assert 0.3 < holder.idle < 30

    # Silent executions of a front end are not activity.
    client.execute_interactive("1 + 1", silent=True, timeout=60)
    assert sessions.session(pid).idle >= holder.idle


def test_cell_that_loads_the_extension_counts_as_running(forked_script):
    out = forked_script("""
        import os
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell(
            "%load_ext hpu_magic\\nimport os; from hpu_magic.sessions import session\\n"
            "print(session(os.getpid()))", store_history=True
        )
        from hpu_magic.sessions import session
        print(session(os.getpid()).idle > 0)
        shell.run_line_magic("reload_ext", "hpu_magic")
        print(session(os.getpid()).idle > 0)
        shell.run_line_magic("unload_ext", "hpu_magic")
        print(session(os.getpid()))
    """)
    lines = [line for line in out.splitlines() if "SIMULATED" not in line]
    state = "SessionState(notebook=None, idle=0.0, name=None, fit=None)"
    assert lines == [state, "True", "True", "None"]


def test_cells_of_several_threads_are_one_busy_session(announce):
    session = announce(running=True)
    session.begin()
    session.end()
    assert sessions.session(os.getpid()) == sessions.SessionState("/notebooks/first.ipynb", 0.0)
    session.end()
    assert sessions.session(os.getpid()).idle > 0
    session.end()
    session.begin()
    assert sessions.session(os.getpid()).idle == 0


def test_ended_process_publishes_nothing_and_its_file_is_removed(own_folder, announce):
    code = f"""
        import os, sys
        from pathlib import Path
        from hpu_magic import private_folder, sessions
        private_folder._OPEN_TO_ALL = (Path({str(own_folder.parents[1])!r}),)
        session = sessions.Announcement("/notebooks/other.ipynb", running=False)
        if not os.fork():
            session.begin()
            sys.exit()
        os.wait()
        print(flush=True)
        input()
    """
    ends = (lambda process: process.communicate("\n"), lambda process: process.kill())
    for end, left in zip(ends, (0, 1), strict=True):
        with started(code) as process:
            seen = sessions.session(process.pid)
            assert (seen.notebook, seen.idle > 0) == ("/notebooks/other.ipynb", True)
            end(process)
            process.communicate()
        assert sessions.session(process.pid) is None
        assert len(list(own_folder.iterdir())) == left
    announce()
    assert [int(path.name.partition("-")[0]) for path in own_folder.iterdir()] == [os.getpid()]


def test_later_process_with_the_same_pid_does_not_match(announce, own_folder):
    announce()
    [path] = own_folder.iterdir()
    path.rename(path.with_name(f"{os.getpid()}-1"))
    assert sessions.session(os.getpid()) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        json.dumps({"notebook": "a.ipynb"}),
        json.dumps({"notebook": 7, "idle_since": 0}),
        json.dumps({"notebook": "a.ipynb", "idle_since": "0"}),
        json.dumps({"notebook": "a.ipynb", "idle_since": True}),
        '{"notebook": "a.ipynb", "idle_since": -1e999}',
        '{"notebook": "a.ipynb", "idle_since": 1%s}' % ("0" * 400),
        "[" * 16000,
    ],
)
def test_damaged_files_are_ignored(announce, own_folder, content):
    announce()
    [path] = own_folder.iterdir()
    path.write_text(content)
    assert sessions.session(os.getpid()) is None
    path.unlink()
    os.mkfifo(path)
    assert sessions.session(os.getpid()) is None


def test_folder_that_others_can_open_is_ignored(announce, own_folder):
    announce()
    own_folder.parent.chmod(0o755)
    assert sessions.session(os.getpid()) is None


@as_root
def test_only_root_can_read_sessions_of_other_users(monkeypatch):
    with tempfile.TemporaryDirectory() as shared:  # other users cannot open pytest's folders
        os.chmod(shared, 0o1777)
        monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (Path(shared),))
        with subprocess.Popen(["sleep", "60"], user=STRANGER) as owner:
            folder = Path(shared, f"hpu_magic-{STRANGER}")
            (folder / "sessions").mkdir(parents=True)
            file = folder / "sessions" / sessions.files.name(owner.pid)
            fit = sessions.Fit("Theirs", began=1.0, share=0.5)
            state = {"notebook": "/notebooks/theirs.ipynb", "idle_since": None}
            file.write_text(json.dumps({**state, "fit": fit.as_record()}))
            for path in (folder, folder / "sessions", file):
                os.chown(path, STRANGER, STRANGER)
            assert sessions.session(owner.pid) is None  # others can open the folder
            folder.chmod(0o700)
            expected = sessions.SessionState("/notebooks/theirs.ipynb", 0.0, None, fit)
            assert sessions.session(owner.pid) == expected
            if not (other := os.fork()):
                os.setuid(STRANGER + 1)
                os._exit(sessions.session(owner.pid) is not None)
            assert os.waitpid(other, 0)[1] == 0
            owner.kill()


@pytest.mark.parametrize(
    ("idle", "text"),
    [
        (None, ""),
        (0, "busy"),
        (0.1, "idle"),
        (59.9, "idle"),
        (60, "idle for 1 min"),
        (3599, "idle for 59 min"),
        (7300, "idle for 2 h"),
        (86400, "idle for 1 day"),
        (3 * 86400, "idle for 3 days"),
    ],
)
def test_idle_time_is_described_as_text(idle, text):
    assert sessions.activity(idle) == text
    name = ", ".join(filter(None, ("first.ipynb", text)))
    assert holders.Holder(7, "first.ipynb", "ada", idle).described() == name


def test_process_can_have_a_name_instead_of_a_notebook(announce, monkeypatch):
    monkeypatch.setattr(sessions.this_process._here, "name", None)
    sessions.name_this_process("rank 2 of first.ipynb")
    announce("/notebooks/second.ipynb")
    assert sessions.session(os.getpid()).name == "rank 2 of first.ipynb"
    assert name_of(os.getpid()) == "rank 2 of first.ipynb"
    assert program_name.full_command(os.getpid()) == "rank 2 of first.ipynb"
