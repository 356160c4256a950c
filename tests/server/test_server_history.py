"""Test the 24-hour history: without clients, with limited memory, and with holders."""

import asyncio
import logging
import time
import tracemalloc
from contextlib import closing

import pytest
from conftest import Server, holding
from started_process import wait_for
from traitlets import TraitError

from hpu_magic.server.application import HpuMagicServer
from hpu_magic.server.holdings import SPANS
from hpu_magic.server.long_history import LENGTH, LongHistory
from hpu_magic.server.sampler import CardSampler

LOG = logging.getLogger("test")
INTERVAL = 20.0


def holder(pid, kernel=None, path=None, command="python train.py"):
    """Return a holder as in a sample; `path` is the notebook of its kernel."""
    notebook = path and {"path": path, "name": path.rpartition("/")[2], "type": "notebook"}
    known = kernel and {"id": kernel, "name": "python3", "state": "idle", "notebook": notebook}
    return {"pid": pid, "command": command, "user": "ann", "idle": None, "kernel": known}


def sample(at, *cards, error=None):
    """Return a sample with holders for each card."""
    return {
        "time": at,
        "source": "simulator",
        "reason": None,
        "cards": [
            {
                "module_id": index,
                "memory_used": int(at),
                "utilization": None,
                "temperature": 40,
                "error": error,
                "holders": holders,
            }
            for index, holders in enumerate(cards)
        ],
    }


def spans(history, since=0.0, now=1e9):
    """Return card, holder, start and end of each span, and whether it continues."""
    found = history.message(since, now)["holders"]
    return [
        (span["card"], span["notebook"] or span["command"], span["from"], span["to"], span["held"])
        for span in found
    ]


def test_one_sample_per_interval_is_stored():
    history = LongHistory(INTERVAL)
    for at in range(1000, 1062, 2):
        history.observe(sample(float(at), []))
    assert history.message(0.0, 1060.0) == {
        "interval": INTERVAL,
        "length": LENGTH,
        "begun": 1000.0,
        "time": [1000.0, 1018.0, 1036.0, 1054.0],
        "cards": {
            "0": {"memory_used": [1000, 1018, 1036, 1054], "utilization": [None] * 4},
        },
        "holders": [],
    }
    assert history.message(1018.0, 1060.0)["time"] == [1036.0, 1054.0]
    assert history.message(1060.0, 1060.0)["cards"]["0"] == {"memory_used": [], "utilization": []}


def test_holders_become_spans():
    history = LongHistory(INTERVAL)
    train = holder(1, "k1", "work/train.ipynb")
    history.observe(sample(0.0, [train], []))
    # Another process of the same kernel counts as the same holder.
    history.observe(sample(20.0, [train, holder(2, "k1", "work/train.ipynb")], [holder(9)]))
    history.observe(sample(40.0, [holder(3, "k2", "eval.ipynb")], [holder(9)]))
    history.observe(sample(50.0, [], [holder(9)]))
    assert spans(history, now=55.0) == [
        (0, "work/train.ipynb", 0.0, 20.0, False),
        (0, "eval.ipynb", 40.0, 40.0, False),
        (1, "python train.py", 20.0, 50.0, True),
    ]
    # Spans that ended long before are omitted.
    assert [name for _, name, *_ in spans(history, since=105.0)] == ["python train.py"]


def test_renamed_notebook_is_one_holder():
    history = LongHistory(INTERVAL)
    history.observe(sample(0.0, [holder(1, "k1", "Untitled.ipynb")]))
    history.observe(sample(20.0, [holder(1, "k1", "train.ipynb")]))
    assert spans(history, now=20.0) == [(0, "train.ipynb", 0.0, 20.0, True)]


@pytest.mark.parametrize("missing", [True, False], ids=["unreadable", "asleep"])
def test_unknown_time_splits_a_span(missing):
    history = LongHistory(INTERVAL)
    history.observe(sample(0.0, [holder(1)]))
    history.observe(sample(20.0, [holder(1)]))
    if missing:
        for at in range(40, 200, 20):
            history.observe(sample(float(at), [], error="The driver hangs."))
    assert spans(history, now=200.0) == [(0, "python train.py", 0.0, 20.0, False)]
    history.observe(sample(200.0, [holder(1)]))
    assert spans(history, now=200.0) == [
        (0, "python train.py", 0.0, 20.0, False),
        (0, "python train.py", 200.0, 200.0, True),
    ]


def test_one_missed_sample_does_not_split_a_span():
    history = LongHistory(INTERVAL)
    history.observe(sample(0.0, [holder(1)]))
    history.observe(sample(20.0, [], error="The driver hangs."))
    history.observe(sample(40.0, [holder(1)]))
    assert spans(history, now=40.0) == [(0, "python train.py", 0.0, 40.0, True)]


def test_clock_that_is_set_back_resets_the_history():
    history = LongHistory(INTERVAL)
    history.observe(sample(5000.0, [holder(1)]))
    history.observe(sample(1000.0, [holder(1)]))
    message = history.message(0.0, 1000.0)
    assert (message["begun"], message["time"]) == (1000.0, [1000.0])
    assert spans(history, now=1000.0) == [(0, "python train.py", 1000.0, 1000.0, True)]


def test_history_is_limited_to_a_day():
    history = LongHistory(600.0)
    for at in range(0, int(2 * LENGTH), 600):
        history.observe(sample(float(at), [holder(at)]))
    message = history.message(0.0, 2 * LENGTH)
    assert len(message["time"]) == LENGTH / 600
    assert message["time"][-1] == 2 * LENGTH - 600
    assert message["holders"][0]["from"] >= LENGTH - 1200


def test_memory_is_limited_when_holders_change_often():
    history = LongHistory(INTERVAL)
    long_name = "x" * 10_000

    def run(first, count):
        for step in range(first, first + count):
            cards = [[holder(step, command=f"{step}{long_name}")] for _ in range(8)]
            history.observe(sample(step * INTERVAL, *cards))

    run(0, 2 * SPANS)
    tracemalloc.start()
    try:
        run(2 * SPANS, SPANS)
        before, _ = tracemalloc.get_traced_memory()
        run(3 * SPANS, 2 * SPANS)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 64 * 1024
    assert len(history.message(0.0, 1e9)["holders"]) == 8 * (SPANS + 1)
    assert all(len(span["command"]) <= 200 for span in history.message(0.0, 1e9)["holders"])


class Reader:
    """A reader with a specified delay."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.readings = 0

    async def read(self):
        self.readings += 1
        await asyncio.sleep(self.seconds)
        return sample(time.time(), [])

    async def stop(self):
        pass


async def join_nothing(record):
    """Add no kernels to a sample, as on a server without kernels."""


def unattended(interval, reader, count):
    """Take samples without clients until there are `count`; count 0 waits for 0.3 s.

    Returns the lengths of the long and the fine history, the pause between samples and the time.
    """

    async def run():
        sampler = CardSampler(reader, join_nothing, LOG, LongHistory(interval or 1.0), interval)
        began = time.monotonic()
        sampler.begin()
        while len(stored := sampler.past.message(0.0, time.time())["time"]) < count:
            await asyncio.sleep(0.01)
        seconds = time.monotonic() - began
        await asyncio.sleep(0 if count else 0.3)
        found = len(stored), len(sampler._history), sampler._interval(), seconds
        await sampler.stop()
        sampler.begin()
        assert not sampler.running
        return found

    return asyncio.run(run())


def test_long_history_grows_without_clients():
    stored, fine, _, seconds = unattended(0.1, Reader(), 5)
    assert 5 <= stored <= 1 + 1.1 * seconds / 0.1
    assert fine == 0


def test_history_can_be_disabled():
    reader = Reader()
    assert unattended(0.0, reader, 0)[:3] == (0, 0, None)
    assert reader.readings == 0


def test_slow_driver_is_read_less_often_without_gaps():
    *_, pause, seconds = unattended(0.1, Reader(seconds=0.05), 3)
    # The pause is longer than 0.1 s, but shorter than 100 times a reading, which would be 5 s.
    assert pause == pytest.approx(0.25)
    assert seconds > 2 * 0.24


@pytest.fixture(scope="module")
def watchful(tmp_path_factory, forked_python):
    """A server that takes samples every two seconds without clients."""
    folder = tmp_path_factory.mktemp("watchful")
    with closing(Server(forked_python, folder, "--HpuMagicServer.history_interval=2")) as server:
        yield server


def test_holders_are_recorded_without_clients(watchful):
    def held(state):
        found = watchful.ask("hpu_magic/history").json["holders"]
        return [span for span in found if span["held"] == state]

    with holding(watchful) as owner:
        [span] = wait_for(lambda: held(True))
        assert (span["card"], span["pid"], span["kernel"]) == (0, owner.pid, None)
    [ended] = wait_for(lambda: held(False))
    assert (ended["id"], ended["pid"]) == (span["id"], owner.pid)
    answer = watchful.ask("hpu_magic/history").json
    assert len(answer["time"]) >= 2
    assert answer["interval"] == 2
    assert set(answer["cards"]) == {"0", "1", "2"}
    later = watchful.ask(f"hpu_magic/history?since={answer['time'][0]}").json
    assert later["time"][: len(answer["time"]) - 1] == answer["time"][1:]


@pytest.mark.parametrize("since", ["never", "nan", "inf"])
def test_invalid_time_is_rejected(watchful, since):
    refusal = watchful.ask(f"hpu_magic/history?since={since}").refusal
    assert refusal == (400, f"since is {since!r}; pass seconds since the epoch.")


@pytest.mark.parametrize("interval", [1.0, -1.0, 4000.0])
def test_invalid_interval_is_rejected(interval):
    with pytest.raises(TraitError) as refused:
        HpuMagicServer(history_interval=interval)
    assert str(refused.value) == (
        f"HpuMagicServer.history_interval is {interval:g}; use 2 to 3600 seconds, or to 0 "
        "to take samples only while a client is connected."
    )
