"""Several threads, forks and interrupts at the same time: no wrong value, no hang, no crash."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "race_programs.py"


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_random_programs_of_threads_forks_and_interrupts(mode, monkeypatch):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", str(int(mode == "lazy")))
    command = [sys.executable, str(PROGRAMS), "--seconds", "8"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-4000:]
    done = json.loads(ran.stdout.splitlines()[-1])
    assert min(done[what] for what in ("programs", "forks", "interrupts", "reads")) > 0


def test_a_fork_while_another_thread_frees_memory_gives_a_child_that_runs(script):
    assert (
        script(
            """
            import os, signal, threading, time
            import torch
            torch.set_num_threads(1)
            done = threading.Event()

            def churn():
                while not done.is_set():
                    x = torch.ones(1 << 16, device="hpu") + 1
                    del x

            threads = [threading.Thread(target=churn, daemon=True) for _ in range(2)]
            for thread in threads:
                thread.start()
            hung = 0
            for _ in range(100):
                child = os.fork()
                if child == 0:
                    os._exit(int((torch.ones(1 << 16) + 1).sum()) != 1 << 17)
                end = time.monotonic() + 20
                while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                    if time.monotonic() > end:
                        os.kill(child, signal.SIGKILL)
                        ended = os.waitpid(child, 0)
                        break
                    time.sleep(0.001)
                hung += ended[1] != 0
                if hung:
                    break
            done.set()
            for thread in threads:
                thread.join()
            print(hung)
            """,
            simulated=True,
        ).strip()
        == "0"
    )
