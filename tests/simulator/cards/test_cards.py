"""Test the driver of the simulated cards, in separate processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from hpu_magic.simulator import cards
from hpu_magic.simulator.cards import Configuration
from hpu_magic.simulator.cards.page import COUNTERS, COUNTERS_OFFSET

GIB = 1 << 30
HOLD = """
    import sys
    from hpu_magic.simulator import cards
    card = cards.acquire()
    print(card.module_id, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """A private directory with one simulated card."""
    for name in ("HPU_MAGIC_CARD", "HPU_MAGIC_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_CARDS", "1")
    return tmp_path / "cards"


@pytest.fixture
def start():
    """A function that starts Python processes, which end after the test."""
    running = []

    def start_process(code, **environ):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )
        running.append(process)
        return process

    yield start_process
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    """A function that runs Python code in a new process and returns its output or error."""

    def run_process(code, **environ):
        out, err = start(code, **environ).communicate(timeout=60)
        return out.strip() or err.strip().splitlines()[-1]

    return run_process


def acquire_message(run, **environ):
    return run("from hpu_magic.simulator import cards; cards.acquire()", **environ)


def card_taken(run, **environ):
    return run("from hpu_magic.simulator import cards; print(cards.acquire().module_id)", **environ)


# Configuration


@pytest.mark.parametrize(
    ("environ", "configuration"),
    [
        ({}, Configuration("GAUDI2", 8, 96 * GIB)),
        ({"HPU_MAGIC_CARD": "gaudi"}, Configuration("GAUDI", 8, 32 * GIB)),
        ({"HPU_MAGIC_CARD": "GAUDI2"}, Configuration("GAUDI2", 8, 96 * GIB)),
        ({"HPU_MAGIC_CARD": "Gaudi3"}, Configuration("GAUDI3", 8, 128 * GIB)),
        ({"HPU_MAGIC_CARDS": "3"}, Configuration("GAUDI2", 3, 96 * GIB)),
        ({"HPU_MAGIC_MEMORY": "96GiB"}, Configuration("GAUDI2", 8, 96 * GIB)),
        ({"HPU_MAGIC_MEMORY": "512 mib"}, Configuration("GAUDI2", 8, 512 << 20)),
        ({"HPU_MAGIC_MEMORY": "1.5GiB"}, Configuration("GAUDI2", 8, 3 * GIB // 2)),
        ({"HPU_MAGIC_MEMORY": "64KiB"}, Configuration("GAUDI2", 8, 65536)),
        ({"HPU_MAGIC_MEMORY": "1000000"}, Configuration("GAUDI2", 8, 1_000_000)),
    ],
)
def test_configuration_is_read_from_the_environment(environ, configuration):
    assert Configuration.from_environment(environ) == configuration


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HPU_MAGIC_CARD", "gaudi4"),
        ("HPU_MAGIC_CARD", ""),
        ("HPU_MAGIC_CARDS", "0"),
        ("HPU_MAGIC_CARDS", "9"),
        ("HPU_MAGIC_CARDS", "two"),
        ("HPU_MAGIC_CARDS", "1.0"),
        ("HPU_MAGIC_MEMORY", ""),
        ("HPU_MAGIC_MEMORY", "0"),
        ("HPU_MAGIC_MEMORY", "-1GiB"),
        ("HPU_MAGIC_MEMORY", "96GB"),
        ("HPU_MAGIC_MEMORY", "nan"),
        ("HPU_MAGIC_MEMORY", "9" * 5000),
        ("HPU_MAGIC_MEMORY", "9999999999TiB"),
    ],
)
def test_invalid_variable_is_reported_with_name_and_value(variable, value):
    with pytest.raises(ValueError, match=variable) as refusal:
        Configuration.from_environment({variable: value})
    assert repr(value) in str(refusal.value)
    assert "; use " in str(refusal.value)


# Ownership


def test_import_loads_no_torch_and_creates_no_file(run, directory):
    assert run("import sys, hpu_magic.simulator.cards; print('torch' in sys.modules)") == "False"
    assert not directory.exists()


def test_each_process_acquires_the_next_free_card(start):
    environ = {"HPU_MAGIC_CARDS": "2"}
    first, second = (start(HOLD, **environ) for _ in range(2))
    assert {first.stdout.readline(), second.stdout.readline()} == {"0\n", "1\n"}


def test_two_processes_that_race_for_a_card_leave_one_owner(run):
    outcome = run("""
        import os
        from hpu_magic.simulator import cards

        def race():
            gate, opened = os.pipe()
            hold, end = os.pipe()
            result, answer = os.pipe()
            children = []
            for _ in range(2):
                child = os.fork()
                if not child:
                    os.close(opened), os.close(end)
                    os.read(gate, 1)
                    try:
                        cards.acquire()
                        os.write(answer, b"o")
                    except cards.AcquireError:
                        os.write(answer, b"b")
                    os.read(hold, 1)
                    os._exit(0)
                children.append(child)
            os.close(opened)
            seen = b""
            while len(seen) < 2:
                seen += os.read(result, 2)
            os.close(end)
            for child in children:
                os.waitpid(child, 0)
            for descriptor in (gate, hold, result, answer):
                os.close(descriptor)
            return "".join(sorted(seen.decode()))

        print(sorted({race() for _ in range(200)}))
    """)
    assert outcome == "['bo']"


def test_threads_that_race_for_a_card_get_the_same_one(run):
    outcome = run(
        """
        import threading
        from hpu_magic.simulator import cards
        barrier = threading.Barrier(16)
        acquired = []
        def take():
            barrier.wait()
            acquired.append(cards.acquire())
            cards.snapshot()
        threads = [threading.Thread(target=take) for _ in range(16)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        held = [state.module_id for state in cards.snapshot() if state.holder]
        print(len({id(card) for card in acquired}), held)
        """,
        HPU_MAGIC_CARDS="8",
    )
    assert outcome == "1 [0]"


def test_snapshot_in_the_owner_does_not_release_the_card(start, run):
    owner = start("""
        from hpu_magic.simulator import cards
        cards.acquire(), cards.snapshot(), cards.snapshot()
        print(flush=True), input()
    """)
    owner.stdout.readline()
    assert "synStatus=8" in acquire_message(run)


def test_error_names_the_process_without_its_arguments(start, run):
    holder = start(f"'S3CRET'\n{textwrap.dedent(HOLD)}")
    holder.stdout.readline()
    message = acquire_message(run)
    assert "synStatus=8 [Device not found] Device acquire failed. " in message
    program = os.path.basename(sys.executable)
    assert f"HPU 0 by process {holder.pid} ({program} -c)" in message
    assert "S3CRET" not in message
    assert "shut down" in message


def test_error_lists_the_longest_idle_session_first(start, run, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "3")
    session = """
        import time
        from hpu_magic import sessions
        session = sessions.Announcement({notebook!r}, running=False)
        now = time.time
        time.time = lambda: now() - {idle}
        session.{method}()
    """
    holders = []
    for notebook, idle, method in (
        ("/notebooks/busy.ipynb", 0, "begin"),
        ("/notebooks/lunch.ipynb", 3700, "end"),
        ("/notebooks/holiday.ipynb", 9 * 86400, "end"),
    ):
        code = textwrap.dedent(session.format(notebook=notebook, idle=idle, method=method))
        holders.append(start(code + textwrap.dedent(HOLD)))
        holders[-1].stdout.readline()
    busy, lunch, holiday = (holder.pid for holder in holders)
    message = acquire_message(run)
    assert (
        f"All cards are held (HPU 2 by process {holiday} (holiday.ipynb, idle for 9 days), "
        f"HPU 1 by process {lunch} (lunch.ipynb, idle for 1 h), "
        f"HPU 0 by process {busy} (busy.ipynb, busy)): shut down a kernel or end a process that "
        "holds a card, then try again"
    ) in message


def test_error_contains_the_state_of_a_fit(start, run, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "1")
    fit = """
        from hpu_magic import sessions
        session = sessions.Announcement("/notebooks/first.ipynb", running=True)
        fit = sessions.PublishedFit()
        fit.update(sessions.Fit("Net", 1.0, "training", epoch=3, share=0.27, remaining=40.2))
    """
    holder = start(textwrap.dedent(fit) + textwrap.dedent(HOLD))
    holder.stdout.readline()
    who = f"HPU 0 by process {holder.pid} (first.ipynb, fit: 27 %, 40 s left)"
    assert who in acquire_message(run)


def test_killed_owner_frees_the_card_while_its_forked_child_lives(start, run):
    owner = start("""
        import os, time
        from hpu_magic.simulator import cards
        cards.acquire()
        child = os.fork()
        if not child:
            os.setsid()
            time.sleep(600)
        print(child, flush=True)
        time.sleep(600)
    """)
    child = int(owner.stdout.readline())
    try:
        assert "synStatus=8" in acquire_message(run)
        owner.kill()
        owner.wait()
        assert card_taken(run) == "0"
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_fork_of_an_owner_owns_no_card_and_must_spawn(run):
    outcome = run("""
        import os
        from hpu_magic.simulator import cards
        card = cards.acquire()
        assert cards.acquired() is card and not cards.in_bad_fork()
        if not os.fork():
            assert cards.acquired() is None and cards.in_bad_fork()
            assert cards.snapshot()[0].holder.pid == os.getppid()
            try:
                cards.acquire()
            except RuntimeError as refusal:
                os.write(1, str(refusal).encode())
            os._exit(0)
        os.wait()
    """)
    assert outcome == (
        "Cannot re-initialize HPU in forked subprocess. To use HPU with "
        "multiprocessing, you must use the 'spawn' start method"
    )


def test_fork_before_first_use_can_acquire_a_card(run):
    outcome = run("""
        import os
        from hpu_magic.simulator import cards
        cards.snapshot()
        if not os.fork():
            os.write(1, str(cards.acquire().module_id).encode())
            os._exit(0)
        os.wait()
    """)
    assert outcome == "0"


# Choice of the card


@pytest.mark.parametrize(
    ("environ", "module"),
    [
        ({"HLS_MODULE_ID": "5"}, "5"),
        ({"HABANA_VISIBLE_MODULES": "3, 2"}, "3"),
        ({"HABANA_VISIBLE_MODULES": "1,2,4", "HLS_MODULE_ID": "4"}, "4"),
        ({"LOCAL_RANK": "3"}, "3"),
        ({"LOCAL_RANK": "3", "HLS_MODULE_ID": "1"}, "1"),
        ({"LOCAL_RANK": "3", "HABANA_VISIBLE_MODULES": "1,2"}, "1"),
        ({"HLS_MODULE_ID": "9"}, "0"),
    ],
)
def test_environment_selects_the_card(run, environ, module):
    assert card_taken(run, HPU_MAGIC_CARDS="8", **environ) == module


def test_another_card_replaces_a_busy_one_only_without_a_visible_list(start, run):
    environ = {"HPU_MAGIC_CARDS": "4", "HLS_MODULE_ID": "2"}
    start(HOLD, **environ).stdout.readline()
    assert card_taken(run, **environ) == "0"
    message = acquire_message(run, HABANA_VISIBLE_MODULES="1,2", **environ)
    assert "The card that this process may use is held (HPU 2 by process" in message


def test_process_can_choose_again_after_a_busy_card(start, run):
    start(HOLD, HPU_MAGIC_CARDS="3").stdout.readline()
    code = """
        from hpu_magic.simulator import cards
        try:
            cards.choose(0)
            cards.acquire()
        except cards.AcquireError:
            cards.choose(2)
        print(cards.acquire().module_id)
    """
    assert run(code, HPU_MAGIC_CARDS="3") == "2"


def test_fork_does_not_inherit_the_choice(run):
    code = """
        import os
        from hpu_magic.simulator import cards
        cards.choose(2)
        if os.fork() == 0:
            cards.choose(1)
            print(cards.acquire().module_id, flush=True)
            os._exit(0)
        os.wait()
        print(cards.acquire().module_id)
    """
    assert run(code, HPU_MAGIC_CARDS="3").split() == ["1", "2"]


@pytest.mark.parametrize(
    "environ",
    [{"HABANA_VISIBLE_MODULES": "7"}, {"HABANA_VISIBLE_MODULES": "0,1", "HLS_MODULE_ID": "3"}],
)
def test_list_without_existing_cards_finds_no_devices(run, environ):
    message = acquire_message(run, HPU_MAGIC_CARDS="4", **environ)
    assert "synStatus=8 [Device not found] Device acquire failed. No devices found." in message
    assert "0 to 3" in message
    assert all(f"{name}={value}" in message for name, value in environ.items())


@pytest.mark.parametrize("variable", ["HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"])
@pytest.mark.parametrize("value", ["", "first", "-1", "0;1"])
def test_invalid_module_ids_are_rejected(run, variable, value):
    message = acquire_message(run, **{variable: value})
    assert message.startswith("ValueError: ")
    assert f"{variable}={value!r}" in message


# Reading the cards


def test_unused_cards_have_zero_counters_and_no_files(directory, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "2")
    first, second = cards.snapshot()
    assert (first.module_id, second.module_id) == (0, 1)
    assert (first.generation, first.capacity) == ("GAUDI2", 96 * GIB)
    assert (first.in_use, first.total_allocs, first.holder, first.error) == (0, 0, None, None)
    assert not directory.exists()


def test_other_processes_read_the_owners_counters(start):
    before = time.time_ns()
    owner = start(
        """
        import struct
        from hpu_magic.simulator import cards
        struct.pack_into("<7q", cards.acquire().page, 64, 11, 22, 33, 44, 55, 66, 77)
        print(flush=True), input()
        """,
        HPU_MAGIC_CARD="gaudi3",
        HPU_MAGIC_MEMORY="2GiB",
    )
    owner.stdout.readline()
    [state] = cards.snapshot()
    assert (state.generation, state.capacity) == ("GAUDI3", 2 * GIB)
    assert state.holder.pid == owner.pid
    assert state.holder.command == f"{os.path.basename(sys.executable)} -c"
    assert before < state.acquired_ns < time.time_ns()
    counters = (state.in_use, state.max_in_use, state.num_allocs, state.num_frees)
    assert counters == (11, 22, 33, 44)
    assert (state.max_alloc_size, state.total_allocs, state.total_frees) == (55, 66, 77)


def test_counters_of_an_ended_owner_are_zero(start):
    owner = start("""
        import struct
        from hpu_magic.simulator import cards
        struct.pack_into("<q", cards.acquire().page, 64, 4096)
        print(flush=True), input()
    """)
    owner.stdout.readline()
    assert cards.snapshot()[0].in_use == 4096
    owner.kill()
    owner.wait()
    [state] = cards.snapshot()
    assert (state.in_use, state.holder, state.error) == (0, None, None)


def test_counters_start_at_zero_for_each_owner(run, directory):
    write = """
        import json, struct
        from hpu_magic.simulator import cards
        card = cards.acquire()
        print(json.dumps(struct.unpack_from("<7q", card.page, 64)))
        struct.pack_into("<7q", card.page, 64, 1, 2, 3, 4, 5, 6, 7)
    """
    assert json.loads(run(write)) == [0] * 7
    content = (directory / "card0").read_bytes()
    assert COUNTERS.unpack_from(content, COUNTERS_OFFSET) == (1, 2, 3, 4, 5, 6, 7)
    assert json.loads(run(write)) == [0] * 7


DAMAGES = {
    "truncated": lambda path: os.truncate(path, 100),
    "overwritten": lambda path: path.write_bytes(b"#!/bin/sh\n".ljust(4096)),
    "other version": lambda path: path.write_bytes(b"HPUCARD\0" + b"\2".ljust(4088, b"\0")),
    "no card": lambda path: path.write_bytes(b"HPUCARD\0" + b"\1".ljust(4088, b"\0")),
    "link": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_page_is_reported_and_not_trusted(start, directory, damage):
    owner = start(HOLD)
    owner.stdout.readline()
    DAMAGES[damage](directory / "card0")
    [state] = cards.snapshot()
    assert str(directory / "card0") in state.error
    assert state.holder.pid == owner.pid
    assert (state.in_use, state.total_allocs) == (0, 0)


def test_damaged_page_of_a_free_card_is_replaced_by_the_next_owner(run, directory):
    card_taken(run)
    DAMAGES["overwritten"](directory / "card0")
    assert cards.snapshot()[0].error
    assert card_taken(run) == "0"
    assert cards.snapshot()[0].error is None


# The directory


def test_only_the_user_can_open_directory_and_files(run, directory):
    card_taken(run)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == {
        "card0": 0o600,
        "card0.lock": 0o600,
    }


def test_linked_directory_is_rejected(run, directory, tmp_path):
    directory.symlink_to(tmp_path)
    message = acquire_message(run)
    assert message.startswith("RuntimeError: ")
    assert f"{directory}, which is a symbolic link" in message
    with pytest.raises(RuntimeError, match="HPU_MAGIC_CARDS_DIR"):
        cards.snapshot()


def test_file_instead_of_the_directory_is_rejected(directory):
    directory.write_text("")
    with pytest.raises(RuntimeError, match="is not a directory"):
        cards.snapshot()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change the owner of a directory")
def test_directory_of_another_user_is_rejected(run, directory):
    directory.mkdir()
    os.chown(directory, 12345, -1)
    assert "belongs to user 12345" in acquire_message(run)
