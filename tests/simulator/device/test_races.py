"""Threads, forks and interrupts at the same time cause no wrong value, no hang and no crash."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

PROGRAMS = Path(__file__).parents[2] / "race_programs.py"


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_random_programs_with_threads_forks_and_interrupts_succeed(mode, monkeypatch):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", str(int(mode == "lazy")))
    command = [sys.executable, str(PROGRAMS), "--seconds", "5"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-4000:]
    done = json.loads(ran.stdout.splitlines()[-1])
    assert min(done[name] for name in ("programs", "forks", "interrupts", "reads")) > 0


# Delays free() of large blocks, which takes longer for memory in use.
SLOW_FREE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

void free(void* memory) {
  static void (*real)(void*);
  if (!real) real = (void (*)(void*))dlsym(RTLD_NEXT, "free");
  if (memory && malloc_usable_size(memory) > (64 << 20)) usleep(20000);
  real(memory);
}
"""


@pytest.fixture(scope="module")
def slow_free(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler (cc or gcc) installed, or not on Linux")
    folder = tmp_path_factory.mktemp("slow_free")
    source, built = folder / "free.c", folder / "libfree.so"
    source.write_text(SLOW_FREE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    return " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(built)]))


def test_child_forked_while_a_thread_frees_memory_runs(script, slow_free):
    assert (
        script(
            """
            import os, signal, threading, time
            import torch
            torch.set_num_threads(1)
            done = threading.Event()
            held = torch.empty(1 << 16, device="hpu")

            def churn():
                while not done.is_set():
                    # More tensors than the pool keeps for reuse
                    tensors = [torch.empty(20_000_000 + i, device="hpu") for i in range(6)]
                    del tensors

            thread = threading.Thread(target=churn, daemon=True)
            thread.start()
            hung = False
            for _ in range(20):
                time.sleep(0.01)
                child = os.fork()
                if child == 0:
                    del held
                    os._exit(int((torch.ones(1 << 16) + 1).sum()) != 1 << 17)
                end = time.monotonic() + 20
                while not (ended := os.waitpid(child, os.WNOHANG))[0] and not hung:
                    hung = time.monotonic() > end
                    time.sleep(0.001)
                if hung:
                    os.kill(child, signal.SIGKILL)
                    break
                assert ended[1] == 0
            done.set()
            thread.join()
            print(hung)
            """,
            simulated=True,
            LD_PRELOAD=slow_free,
        ).strip()
        == "False"
    )
