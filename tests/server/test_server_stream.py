"""Test the stream, the metrics and the reader of the server."""

import os
import re
import signal
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from conftest import Server
from started_process import wait_for


def series(text, name):
    """Return the values of a metric by card."""
    found = re.findall(rf'^{name}{{card="HPU (\d)",[^}}]*}} (\S+)$', text, re.MULTILINE)
    return {int(card): float(value) for card, value in found}


def maps(pid):
    return Path(f"/proc/{pid}/maps").read_text()


def test_stream_starts_with_the_history_followed_by_samples(server):
    first = server.stream("?interval=0.5")
    assert first.message() == {"type": "history", "time": [], "cards": {}}
    seen = [first.snapshot() for _ in range(3)]
    assert [sample["source"] for sample in seen] == ["simulator"] * 3
    times = [sample["time"] for sample in seen]
    assert times == sorted(set(times))
    assert times[-1] - times[0] < 3  # it would be longer at the default interval

    second = server.stream()
    history = second.message()
    assert history["type"] == "history"
    assert history["time"][:3] == times
    assert history["cards"]["2"]["memory_used"][:3] == [0, 0, 0]
    assert history["cards"]["2"]["power"][:3] == [None, None, None]
    # Both clients receive the same samples, at the shorter interval.
    later = [second.snapshot()["time"] for _ in range(4)]
    while times[-1] < later[-1]:
        times.append(first.snapshot()["time"])
    assert times[-4:] == later
    first.close()
    second.close()


def test_client_changes_its_interval(server):
    stream = server.stream("?interval=60")
    stream.socket.send('{"type": "interval", "seconds": 0.5}')
    before = stream.snapshot()["time"]
    for _ in range(3):
        sample = stream.snapshot()
    assert sample["time"] - before < 10
    stream.close()


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "[]",
        '{"type": "interval"}',
        '{"type": "interval", "seconds": 0.4}',
        '{"type": "interval", "seconds": 61}',
        '{"type": "interval", "seconds": NaN}',
        '{"type": "interval", "seconds": "5"}',
        '{"type": "interval", "seconds": true}',
        f'{{"type": "interval", "seconds": 1{"0" * 400}}}',
        "[" * 100_000,
        '{"type": "pause", "seconds": 1}',
    ],
)
def test_invalid_message_closes_the_stream(server, message):
    stream = server.stream("?interval=5")
    stream.socket.send(message)
    assert stream.closed() == 1008


@pytest.mark.parametrize("query", ["?interval=0", "?interval=never", "?interval=inf"])
def test_invalid_interval_closes_the_stream(server, query):
    assert server.stream(query).closed() == 1008


def test_metrics_have_the_known_values_of_the_last_sample(server, outsider):
    outsider()
    server.cards()
    text = server.ask("metrics").text
    assert series(text, "hpu_held") == {0: 1, 1: 0, 2: 0}
    assert series(text, "hpu_memory_total_bytes") == dict.fromkeys(range(3), float(4 << 30))
    assert series(text, "hpu_memory_used_bytes") == dict.fromkeys(range(3), 0.0)
    for absent in ("utilization_ratio", "temperature_celsius", "power_watts", "clock_hertz"):
        assert series(text, f"hpu_{absent}") == {}
    assert 'hpu_held{card="HPU 0",module_id="0",name="GAUDI2"} 1.0' in text


@pytest.fixture
def fresh_server(tmp_path, forked_python):
    with closing(Server(forked_python, tmp_path)) as server:
        yield server


@pytest.fixture
def server_without_history(tmp_path, forked_python):
    with closing(Server(forked_python, tmp_path, "--HpuMagicServer.history_interval=0")) as server:
        yield server


def test_child_process_reads_the_cards_while_clients_are_connected(server_without_history):
    server = server_without_history
    assert server.readers() == []
    stream = server.stream("?interval=0.5")
    stream.snapshot()
    [reader] = server.readers()
    for pid in (server.process.pid, reader.pid):
        assert "libtorch" not in maps(pid)
    assert not (server.notebooks.parent / "cards").exists()  # no process has acquired a card
    stream.close()
    wait_for(lambda: server.readers() == [])

    # The reader ends with the server, however the server ends.
    server.stream("?interval=0.5")
    [reader] = wait_for(server.readers)
    server.process.kill()
    wait_for(lambda: not reader.is_running() or reader.status() == psutil.STATUS_ZOMBIE)


def test_scrape_starts_sampling_and_does_not_wait(fresh_server):
    assert series(fresh_server.ask("metrics").text, "hpu_held") == {}
    wait_for(
        lambda: series(fresh_server.ask("metrics").text, "hpu_held") == dict.fromkeys(range(3), 0)
    )


def test_server_ends_its_reader_silently(fresh_server):
    stream = fresh_server.stream("?interval=0.5")
    stream.snapshot()
    [reader] = fresh_server.readers()
    os.kill(reader.pid, signal.SIGKILL)
    missing = stream.snapshot(lambda sample: sample["reason"])
    assert "SIGKILL" in missing["reason"]
    assert all(card["error"] for card in missing["cards"])
    again = stream.snapshot(lambda sample: sample["time"] > missing["time"])
    assert again["reason"] is None
    [reader] = fresh_server.readers()

    fresh_server.process.terminate()
    fresh_server.process.wait(timeout=100)
    wait_for(lambda: not reader.is_running())
    fresh_server.log.seek(0)
    assert "Traceback" not in fresh_server.log.read()
