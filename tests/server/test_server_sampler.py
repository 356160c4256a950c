"""Test the sampler with a real reader process: samples, intervals and failures."""

import asyncio
import logging
import os
import signal
import time
import tracemalloc
from pathlib import Path

import pytest
from conftest import HOLD
from started_process import started, started_python
from tornado.websocket import WebSocketClosedError

from hpu_magic.server.handlers import StreamHandler
from hpu_magic.server.history import CAPACITY, History
from hpu_magic.server.reader_process import ReaderProcess, ReadError
from hpu_magic.server.sampler import CardSampler

TESTS = Path(__file__).parents[1]
LOG = logging.getLogger("test")


async def join_nothing(record):
    """Add no kernels to a sample, as on a server without kernels."""


def record(time, **cards):
    """Return a sample with the memory in use on each card."""
    absent = dict.fromkeys(("utilization", "temperature", "power", "clock", "error"))
    return {
        "time": time,
        "source": "simulator",
        "reason": None,
        "cards": [
            {"module_id": int(name[-1]), "memory_used": used, "holders": [], **absent}
            for name, used in cards.items()
        ],
    }


@pytest.fixture
def real_cards(hlml_cards, tmp_path, monkeypatch):
    """Provide two cards of the test library; return the folder of the files that control it."""
    monkeypatch.setenv("PYTHONPATH", hlml_cards["PYTHONPATH"])
    monkeypatch.setenv("HLML_TEST_CARDS", "2")
    monkeypatch.setenv("HLML_TEST_HANG", str(tmp_path / "hang"))
    monkeypatch.setenv("HLML_TEST_CRASH", str(tmp_path / "crash"))
    return tmp_path


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("hang", "The driver did not answer within 1 s; the reader process is being restarted."),
        (
            "crash",
            "The child process that reads the cards crashed in the driver's library (SIGABRT); ",
        ),
    ],
)
def test_broken_driver_loses_one_sample_and_never_blocks(real_cards, order, reason):
    async def watch():
        reader = ReaderProcess(timeout=1.0)
        sampler = CardSampler(reader, join_nothing, LOG)
        samples = [await sampler.fresh()]
        first = reader.pid
        (real_cards / order).touch()
        missing = asyncio.ensure_future(sampler.fresh())
        turns = 0
        while not missing.done():
            await asyncio.sleep(0.01)
            turns += 1
        samples += [missing.result(), await sampler.fresh()]
        await sampler.stop()
        return samples, turns, first

    (good, missing, again), turns, first = asyncio.run(watch())
    assert good["source"] == again["source"] == "hlml"
    # The test library's cards have memory in use, but no process has them open.
    assert good["reason"] == again["reason"]
    assert "are not visible" in good["reason"]
    assert [card["memory_used"] for card in again["cards"]] == [6 << 30] * 2
    assert missing["reason"].startswith(reason)
    assert [card["name"] for card in missing["cards"]] == ["HL-225", "HL-325L"]
    for card in missing["cards"]:
        assert (card["memory_used"], card["utilization"], card["holders"]) == (None, None, [])
        assert card["error"] == missing["reason"]
    assert turns > (5 if order == "hang" else 0)  # the loop did not wait for the driver
    assert not Path(f"/proc/{first}").exists()


def test_failing_driver_is_read_less_and_less_often(real_cards):
    async def watch():
        reader = ReaderProcess(timeout=5.0)
        texts = []
        for _ in range(6):
            (real_cards / "crash").touch()
            with pytest.raises(ReadError) as missing:
                await reader.read()
            texts.append(str(missing.value))
        await reader.stop()
        return texts

    texts = asyncio.run(watch())
    # Two attempts, then a pause.
    assert not any("next attempt" in text for text in texts[:2])
    assert all("SIGABRT" in text and "next attempt is in" in text for text in texts[2:])
    assert (real_cards / "crash").exists()


def readings(count):
    """Return samples from a reader in a child process."""

    async def read():
        reader = ReaderProcess(timeout=5.0)
        samples = [await reader.read() for _ in range(count)]
        await reader.stop()
        return samples

    return asyncio.run(read())


def test_output_of_a_library_does_not_affect_answers(real_cards, monkeypatch):
    monkeypatch.setenv("HLML_TEST_CHATTER", "1")
    assert [len(sample["cards"]) for sample in readings(3)] == [2, 2, 2]


def test_reader_ends_with_its_input(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path))
    with started_python("-m", "hpu_magic.server.reader") as reader:
        assert reader.printed == "ready\n"
        out, _ = reader.communicate(timeout=30)
    assert (out, reader.returncode) == ("", 0)


def test_reader_returns_the_ancestors_of_holders(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path))
    with started(HOLD) as owner:
        [sample] = readings(1)
    [holder] = sample["cards"][0]["holders"]
    assert holder["pid"] == owner.pid
    assert holder["ancestors"][:2] == [os.getpid(), os.getppid()]


class Reader:
    """A fast reader."""

    def __init__(self):
        self.readings = 0
        self.stopped = 0

    async def read(self):
        self.readings += 1
        await asyncio.sleep(0.01)
        return record(time.time(), card0=self.readings)

    async def stop(self):
        self.stopped += 1


def test_clients_share_the_shortest_interval_until_the_last_one_leaves():
    async def watch():
        reader = Reader()
        sampler = CardSampler(reader, join_nothing, LOG)
        slow, quick = [], []
        listen_slowly, listen_quickly = slow.append, quick.append
        sampler.subscribe(listen_slowly, 60.0)
        while not slow:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        alone = reader.readings
        began = time.monotonic()
        sampler.subscribe(listen_quickly, 0.05)
        while len(quick) < 8:
            await asyncio.sleep(0.01)
        together = reader.readings
        seconds = time.monotonic() - began
        sampler.unsubscribe(listen_quickly)
        await asyncio.sleep(0.3)
        after = reader.readings
        sampler.unsubscribe(listen_slowly)
        await asyncio.sleep(0.1)
        assert not sampler.running
        assert reader.stopped == 1
        return alone, together, after, slow, quick, seconds

    alone, together, after, slow, quick, seconds = asyncio.run(watch())
    assert alone == 1
    assert 8 <= together - alone <= 1 + seconds / 0.05
    assert after - together <= 1
    # The same object, because each message is encoded once.
    assert all(a is b for a, b in zip(slow[alone:], quick, strict=False))


def test_client_that_connects_while_the_reader_stops_gets_samples():
    class SlowStop(Reader):
        async def stop(self):
            await asyncio.sleep(0.2)

    async def watch():
        sampler = CardSampler(SlowStop(), join_nothing, LOG)
        first, second = [], []
        listen_first, listen_second = first.append, second.append
        sampler.subscribe(listen_first, 0.05)
        while not first:
            await asyncio.sleep(0.01)
        sampler.unsubscribe(listen_first)
        await asyncio.sleep(0.1)
        sampler.subscribe(listen_second, 0.05)
        while len(second) < 2:
            await asyncio.sleep(0.01)
        await sampler.stop()

    asyncio.run(asyncio.wait_for(watch(), 60))


def test_simultaneous_requests_share_one_reading():
    async def request():
        reader = Reader()
        sampler = CardSampler(reader, join_nothing, LOG)
        samples = await asyncio.gather(*(sampler.fresh() for _ in range(10)))
        return reader.readings, samples

    readings, samples = asyncio.run(request())
    # One for the first request, and one for all others.
    assert readings == 2
    assert all(sample is samples[1] for sample in samples[1:])


def test_sampler_continues_after_a_failed_join(caplog):
    async def watch():
        failures = iter([True, False])

        async def join(_):
            if next(failures, False):
                raise KeyError("a kernel that has ended")

        received = asyncio.Event()
        sampler = CardSampler(Reader(), join, LOG)
        sampler.subscribe(lambda _: received.set(), 0.05)
        await asyncio.wait_for(received.wait(), 10)
        await sampler.stop()

    asyncio.run(watch())
    assert "could not take a sample" in caplog.text


def test_history_has_the_newest_samples_in_order_and_missing_values():
    history = History(3)
    for second in range(5):
        history.append(record(float(second), card0=second * 10))
    history.append(record(5.5, card0=None, card1=7))
    assert len(history) == 3
    message = history.message()
    assert message["time"] == [3.0, 4.0, 5.5]
    assert message["cards"]["0"]["memory_used"] == [30, 40, None]
    assert message["cards"]["1"]["memory_used"] == [None, None, 7]
    assert message["cards"]["0"]["temperature"] == [None] * 3


def test_empty_history_has_no_cards():
    assert History().message() == {"type": "history", "time": [], "cards": {}}


def test_memory_does_not_grow_with_the_number_of_samples():
    class Steady(Reader):
        async def read(self):
            self.readings += 1
            used = {f"card{index}": self.readings << 20 for index in range(8)}
            return record(float(self.readings), **used)

    async def run():
        sampler = CardSampler(Steady(), join_nothing, LOG)
        sampler._listeners[lambda _: None] = 1.0
        for _ in range(CAPACITY + 100):
            await sampler._sample()
        tracemalloc.start()
        try:
            for _ in range(100):
                await sampler._sample()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(2_000):  # a leak of one number per sample would be 56 KB
                await sampler._sample()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(sampler._history) == CAPACITY
        return after - before

    assert asyncio.run(run()) < 4096


class SlowClient(StreamHandler):
    """The handler of a client that receives messages on command."""

    def __init__(self):
        self._sending = None
        self.written = []

    def write_message(self, message, binary=False):
        self.written.append((message, asyncio.get_running_loop().create_future()))
        return self.written[-1][1]


def test_slow_client_misses_samples_instead_of_accumulating_them():
    async def send():
        client = SlowClient()
        client._send(b"first")
        client._send(b"dropped")
        client._send(b"dropped too")
        client.written[0][1].set_result(None)
        client._send(b"next")
        client.written[1][1].set_exception(WebSocketClosedError())
        client._send(b"last")
        return [message for message, _ in client.written]

    assert asyncio.run(send()) == [b"first", b"next", b"last"]


def test_stop_ends_the_child(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path))

    async def run():
        reader = ReaderProcess(timeout=5.0)
        await reader.read()
        pid = reader.pid
        await reader.stop()
        return pid, reader.pid

    pid, after = asyncio.run(run())
    assert after is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
