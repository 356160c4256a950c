"""Test the sampler: bounded series, a thread only while there are subscriptions, no card in use."""

import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from started_process import wait_for

from hpu_magic.runtime.training.sampler import RingBuffer, Sampler


def test_ring_buffer_keeps_the_newest_rows_in_order() -> None:
    buffer = RingBuffer(("time", "value"), capacity=4)
    for index in range(6):
        buffer.append(index, 10 * index)
    rows, cursor = buffer.since(0)
    assert rows == {"time": [2, 3, 4, 5], "value": [20, 30, 40, 50]}
    buffer.append(6, 60)
    assert buffer.since(cursor)[0] == {"time": [6], "value": [60]}
    assert len(buffer) == 4


def test_ring_buffer_rejects_a_row_with_another_number_of_values() -> None:
    with pytest.raises(ValueError, match="must have 2 values"):
        RingBuffer(("time", "value")).append(1.0)


def test_each_reader_reads_a_value_once() -> None:
    sampler = Sampler()
    sampler.record("train", loss=2.0)
    rows, cursor = sampler.read("train")
    assert rows["loss"] == [2.0]
    sampler.record("train", loss=1.0)
    assert sampler.read("train", cursor)[0]["loss"] == [1.0]
    assert sampler.read("train")[0]["loss"] == [2.0, 1.0]


def test_series_rejects_names_that_differ_from_its_first_row() -> None:
    sampler = Sampler()
    sampler.record("train", loss=2.0)
    with pytest.raises(ValueError, match="'train' has the values"):
        sampler.record("train", accuracy=0.5)


def test_number_of_marks_is_bounded() -> None:
    sampler = Sampler(capacity=10)
    for index in range(25):
        sampler.mark("epoch", str(index))
    marks, cursor = sampler.marks()
    assert [mark.text for mark in marks] == [str(index) for index in range(15, 25)]
    assert sampler.marks(cursor)[0] == []


def sampler_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hpu-sampler"]


def test_thread_runs_while_there_are_subscriptions() -> None:
    sampler = Sampler()
    ticks: list[float] = []
    first = sampler.subscribe(lambda _: ticks.append(time.monotonic()), rate=50)
    second = sampler.subscribe(rate=1)
    wait_for(lambda: len(ticks) > 3)
    first.close()
    assert sampler_threads()
    second.close()
    wait_for(lambda: not sampler_threads())
    again = sampler.subscribe(rate=50)
    assert sampler_threads()
    again.close()


def test_ticks_do_not_exceed_the_rate() -> None:
    sampler = Sampler()
    ticks: list[float] = []
    with sampler.subscribe(lambda _: ticks.append(time.monotonic()), rate=10):
        time.sleep(1.0)
    assert 2 <= len(ticks) <= 12


@pytest.mark.parametrize("rate", [0, -1, 51, float("nan"), float("inf")])
def test_rate_out_of_range_is_rejected(rate: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 50"):
        Sampler().subscribe(rate=rate)


def test_only_the_failing_subscriber_is_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sampler = Sampler()
    ticks: list[int] = []

    def broken(_: Sampler) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR), sampler.subscribe(lambda _: ticks.append(1), rate=50):
        sampler.subscribe(broken, rate=50)
        wait_for(lambda: len(ticks) > 5)
    assert caplog.text.count("no longer updates") == 1


def test_memory_in_use_is_sampled(torch: Any) -> None:
    kept = torch.zeros(1 << 20, device="hpu")
    sampler = Sampler()
    with sampler.subscribe(rate=50):
        wait_for(lambda: sampler.last("memory") is not None)
    row = sampler.last("memory")
    assert row is not None
    assert row["in_use"] >= kept.nbytes
    assert row["peak"] >= row["in_use"]
    assert row["limit"] == torch.hpu.memory_stats()["Limit"]


def test_sampling_neither_acquires_a_card_nor_imports_torch() -> None:
    program = """
import sys, time
from hpu_magic import backend
backend.activate()
from hpu_magic.runtime.training.sampler import sampler
assert "torch" not in sys.modules
with sampler().subscribe(rate=50):
    time.sleep(0.2)
    assert "torch" not in sys.modules
    import torch
    time.sleep(0.2)
assert not torch.hpu.is_initialized()
assert sampler().last("memory") is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
