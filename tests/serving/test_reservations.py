"""Test servers that start at the same time in different notebooks."""

import subprocess
import sys

import pytest

RESERVE = """
from hpu_magic.serving.checks import free_port
from hpu_magic.serving.reservations import Reservations
with Reservations() as reserved:
    print(reserved.port(free_port(0)), *reserved.cards(1), flush=True)
    input()
"""


@pytest.fixture
def starting(environment):
    """A process whose server has not yet acquired a card, and the server's port."""
    with subprocess.Popen(
        [sys.executable, "-c", RESERVE],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        port, card = process.stdout.readline().split()
        assert card == "0"
        yield process, int(port)
        process.kill()


def test_another_server_uses_another_card_and_port(shell, starting):
    process, port = starting
    out = shell(
        f"%hpu_serve tiny --port {port}",
        "%hpu_serve tiny --port 0 --cards 2",
        "report = %hpu_serve tiny --port 0",
        "print(report.cards)",
    )
    assert f"Port {port} cannot be used, because process {process.pid} (" in out
    assert "only 1 of 2 are free: HPU 0 is held by process " in out
    assert "[1]" in out


def test_killed_process_reserves_nothing(shell, starting):
    process, port = starting
    process.kill()
    process.wait()
    out = shell(f"report = %hpu_serve tiny --port {port} --cards 2", "print(report.cards)")
    assert "[0, 1]" in out


def test_reservations_end_when_the_server_is_ready(shell):
    out = shell(
        "report = %hpu_serve tiny --port 0",
        "from hpu_magic.serving.reservations import Reservations",
        "with Reservations() as reserved: print('free', reserved.cards(1))",
        "%hpu_serve off",
        "with Reservations() as reserved: print('free', reserved.cards(2))",
    )
    assert "free [1]" in out
    assert "free [0, 1]" in out
