"""Test how dry runs end: early, with a status, by a signal, or because a script is unsupported."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hpu_magic.simulator.dry_run.steps import RunEnded, Steps

ENDED = pytest.raises(RunEnded)


def test_cycle_of_two_steps_repeats():
    steps = Steps()
    for work in [9, 1, 2, 1, 2, 1]:
        steps.add(work)
    with ENDED:
        steps.add(2)
    assert steps.repeated == 2


def test_bare_except_does_not_continue_the_loop():
    steps = Steps(2)
    events = []

    def train():
        try:
            for number in range(100):
                try:
                    steps.add(number)
                    events.append(number)
                except:  # noqa: E722
                    events.append("skipped")
        finally:
            events.append("closed")

    with ENDED:
        train()
    assert steps.count == 2
    assert events == [0, "skipped", 2, "closed"]


def test_finally_block_with_steps_runs_to_its_end():
    steps = Steps(1)
    events = []

    def train():
        while True:
            try:
                steps.add(0)
            except:  # noqa: E722
                pass
            finally:
                steps.add(1)
                events.append("closed")

    with ENDED:
        train()
    assert events == ["closed"]


def test_except_in_a_function_that_the_loop_calls():
    steps = Steps(1)
    calls = []

    def one(number):
        calls.append(number)
        with contextlib.suppress(ValueError):
            try:
                steps.add(number)
                steps.add(number)
            except:  # noqa: E722
                pass

    def train():
        for number in range(100):
            one(number)

    with ENDED:
        train()
    assert len(calls) < 4


def test_process_is_left_if_the_script_always_catches_the_end():
    left = []
    steps = Steps(1, leave=lambda: left.append(steps.count))

    def one(number):
        with contextlib.suppress(BaseException):
            steps.add(number)
            return number

    for number in range(20):
        one(number)
    sys.settrace(None)
    assert left


def test_script_that_catches_everything_ends_early(dry):
    result, output = dry(
        """
        import torch
        model = torch.nn.Linear(8, 8, device="hpu")
        optimizer = torch.optim.SGD(model.parameters())
        try:
            for number in range(1000):
                try:
                    model(torch.ones(2, 8, device="hpu")).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                except:
                    print("skipped")
        finally:
            print("closed")
        print("end")
        """
    )
    assert output == "skipped\nclosed\n"
    assert (result.steps, result.stopped, result.status) == (4, True, 0)


def test_status_of_os_exit(dry):
    result, _ = dry("import os, torch\ntorch.ones(3, device='hpu')\nos._exit(5)")
    assert (result.status, result.peak) == (5, 12)


def test_script_that_fails_before_it_uses_the_card_has_a_result(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("\nimport missing_module\n")
    command = [sys.executable, "-m", "hpu_magic.command_line", "dry-run", "--json", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["error"] == "ModuleNotFoundError: No module named 'missing_module'"
    assert (found["error_line"]["line"], found["peak"]) == (2, 0)
    assert done.stderr.startswith("Traceback")


def test_process_that_the_script_starts_cannot_use_the_card(dry, capfd):
    result, output = dry(
        """
        import torch
        def rank(number):
            print(torch.ones(2) + number, flush=True)
            torch.ones(2, device="hpu")
        if __name__ == "__main__":
            process = torch.multiprocessing.get_context("spawn").Process(target=rank, args=(0,))
            process.start()
            process.join()
            print(process.exitcode)
        """
    )
    assert output == "tensor([1., 1.])\n1\n"
    assert (result.status, result.peak) == (0, 0)
    assert "Only the main process of a dry run can use the card" in capfd.readouterr().err


def started(tmp_path):
    """Start a dry run of a script that waits; return the processes of both."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(0.1)"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "hpu_magic.command_line", "dry-run", str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    return process, psutil.Process(int(process.stdout.readline())), folder


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signal_ends_the_script_and_removes_its_files(tmp_path, number, status):
    process, script, folder = started(tmp_path)
    with process:
        process.send_signal(number)
        assert process.wait(60) == status
    assert not script.is_running()
    assert list(folder.iterdir()) == []


def test_interrupt_in_a_terminal_ends_the_script_and_shows_its_report(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nx = torch.ones(1024, device='hpu')\nprint('ready', flush=True)\n"
        "while True: x.add_(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "hpu_magic.command_line", "dry-run", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        report, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "it was interrupted." in report
    assert "peak memory" in report
    assert "4.00 KiB" in report


def test_script_ends_if_the_command_is_killed(tmp_path):
    process, script, _ = started(tmp_path)
    with process:
        process.kill()
    until = time.monotonic() + 60
    while script.is_running() and time.monotonic() < until:
        time.sleep(0.1)
    assert not script.is_running()


@pytest.mark.parametrize(
    ("options", "ends"), [({}, 32), ({"whole": True}, None), ({"most": 50}, 50)]
)
def test_steps_that_differ_end_a_run_after_half_a_minute(options, ends):
    steps = Steps(clock=lambda: float(steps.count), **options)
    ended = None
    try:
        for number in range(100):
            steps.add(number)
    except RunEnded:
        ended = steps.count
    assert ended == ends
    assert steps.repeated is None


@pytest.mark.parametrize(
    ("options", "used", "ends"),
    [({}, False, 32), ({"most": 3}, False, 32), ({"whole": True}, False, None), ({}, True, None)],
)
def test_steps_that_do_not_use_the_card_end_a_run_after_half_a_minute(options, used, ends):
    skipped = []
    steps = Steps(clock=lambda: float(len(skipped)), **options)
    if used:
        steps.add(1)
    ended = None
    try:
        for number in range(100):
            skipped.append(number)
            steps.skip()
    except RunEnded:
        ended = len(skipped)
    assert ended == ends
    assert steps.count == used


def test_steps_that_repeat_end_a_run_unless_it_is_whole():
    for whole, count in [(False, 3), (True, 6)]:
        steps = Steps(6, whole=whole)
        with pytest.raises(RunEnded):
            _add_ten(steps)
        assert steps.count == count


def _add_ten(steps):
    for _ in range(10):
        steps.add(1)


def test_processes_of_the_script_end_with_it(dry):
    _, output = dry(
        """
        import subprocess, torch
        torch.ones(3, device="hpu")
        print(subprocess.Popen(["sleep", "600"]).pid)
        """
    )
    assert not _runs(int(output))


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
