"""Test starting workers on a slow machine, and workers that exit immediately."""

import os
import signal
import sys
import threading
import time

import ipyparallel
import pytest

from hpu_magic import HPUError
from hpu_magic.parallel import cluster

PAUSE = 12  # longer than ipyparallel's own limits


def test_workers_wait_for_a_controller_that_is_slow(monkeypatch):
    start = ipyparallel.Cluster.start_engines

    async def start_engines(self, *arguments):
        await start(self, *arguments)
        os.kill(self.controller.pid, signal.SIGSTOP)
        threading.Timer(PAUSE, os.kill, (self.controller.pid, signal.SIGCONT)).start()

    monkeypatch.setattr(ipyparallel.Cluster, "start_engines", start_engines)
    workers = cluster.Cluster(1, None)
    try:
        assert workers.client.ids == [0]
    finally:
        workers.stop()


def test_worker_that_ends_at_once_is_an_error(monkeypatch):
    launcher = cluster._engines()
    launcher.engine_cmd.default_value = [sys.executable, "-c", "import sys; sys.exit('no memory')"]
    monkeypatch.setattr(cluster, "_engines", lambda: launcher)
    began = time.monotonic()
    with pytest.raises(HPUError) as refused:
        cluster.Cluster(1, None)
    assert str(refused.value) == (
        "Only 0 of 1 workers started because one ended with exit code 1: the last line of the "
        "launcher's output is 'no memory'."
    )
    assert time.monotonic() - began < cluster._START_SECONDS / 4


def test_workers_that_are_too_late_are_an_error(monkeypatch):
    launcher = cluster._engines()
    launcher.engine_cmd.default_value = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(cluster, "_engines", lambda: launcher)
    monkeypatch.setattr(cluster, "_START_SECONDS", 15)
    with pytest.raises(HPUError) as refused:
        cluster.Cluster(1, None)
    assert str(refused.value) == (
        "Only 0 of 1 workers started within 15 s: end other programs that use this machine's "
        "processors or memory."
    )
