"""Test real cards, read through the real binding from a test library that replaces HLML."""

import json
import os
import sys

import pytest
from started_process import completed

READ = """
import dataclasses, json
from hpu_magic import monitor
monitor.snapshot()
print(json.dumps(dataclasses.asdict(monitor.snapshot())))
"""


@pytest.fixture
def read(hlml_cards, tmp_path):
    """Take a snapshot in another process."""

    def read_process(**environ):
        cards = {"HPU_MAGIC_CARDS_DIR": str(tmp_path / "cards")}
        settings = {**os.environ, **cards, **hlml_cards, **environ}
        shown = completed(sys.executable, "-c", READ, env=settings, check=True)
        assert shown.stderr == ""
        return json.loads(shown.stdout)

    return read_process


def test_real_card_has_the_values_of_the_library(read):
    seen = read(HLML_TEST_CARDS="1")
    assert seen["source"] == "hlml"
    assert "HPU 4 is in use by processes that are not visible" in seen["reason"]
    [card] = seen["cards"]
    assert (card["name"], card["generation"], card["simulated"]) == ("HL-225", "GAUDI2", False)
    assert (card["index"], card["module_id"]) == (0, 4)
    assert (card["memory_used"], card["memory_total"]) == (6 << 30, 96 << 30)
    assert (card["utilization"], card["power"], card["clock"]) == (37.0, 87.5, 1650.0)


def test_values_that_a_card_or_library_lacks_are_absent(read):
    first, second = read(HLML_TEST_CARDS="2")["cards"]
    assert first["temperature"] is None
    assert (second["name"], second["generation"]) == ("HL-325L", "GAUDI3")
    assert [second[key] for key in ("utilization", "power", "clock", "error")] == [None] * 4


def test_lost_card_is_reported_and_hides_no_other(read):
    cards = read()["cards"]
    lost = "The card is lost: the driver cannot reach it (hlmlDeviceGetName: code 15)."
    # The module ID of the lost card is unknown, so the card gets a number that is free.
    assert [(card["index"], card["module_id"], card["error"]) for card in cards] == [
        (2, 0, lost),
        (0, 4, None),
        (1, 5, None),
    ]


def test_simulator_is_used_if_the_library_finds_no_card(read):
    for environ in ({"HLML_TEST_NO_DRIVER": "1"}, {"HLML_TEST_CARDS": "0"}):
        seen = read(HPU_MAGIC_CARDS="2", **environ)
        assert seen["source"] == "simulator"
        assert len(seen["cards"]) == 2
