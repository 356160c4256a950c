"""Test real cards, read from the output of the vendor's hl-smi."""

import json
import os

import pytest

from hpu_magic.monitor import hlsmi
from hpu_magic.monitor.reading import UNKNOWN

FIELDS = """\
index, module_id, bus_id, name, memory.used [MiB], memory.total [MiB], utilization.aip [%], \
temperature.aip [C], power.draw [W], clocks.current.soc [MHz]
0, 4, 0000:09:00.0, HL-225, 768 MiB, 98304 MiB, 0 %, 26 C, 87 W, 1650 MHz
1, 6, 0000:0A:00.0, HL-325L, 1024, 131072, 37, N/A, [Not Supported], 1200
"""

TABLE = """\
+-----------------------------------------------------------------------------+
| HL-SMI Version:                              hl-1.21.0-fw-59.1.0            |
| Driver Version:                                     1.21.0-a3b9c1d          |
| Nic Driver Version:                                 1.21.0-32ff121          |
|-------------------------------+----------------------+----------------------+
| AIP  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC|
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | AIP-Util  Compute M. |
|===============================+======================+======================|
|   0  HL-225              N/A  | 0000:09:00.0     N/A |                   0  |
| N/A   26C   N/A    87W / 600W |   768MiB / 98304MiB  |     0%           N/A |
|-------------------------------+----------------------+----------------------+
|   1  HL-225              N/A  | 0000:0a:00.0     N/A |                   0  |
| N/A   N/A   N/A   190W / 600W | 97279MiB / 98304MiB  |    93%           N/A |
|===============================+======================+======================|
| Compute Processes:                                               AIP Memory |
|  AIP       PID   Type   Process name                             Usage      |
|=============================================================================|
|   0        N/A   N/A    N/A                                      N/A        |
|   1        {pid}   C      python                                 96511MiB   |
+=============================================================================+
"""


def figures(card):
    return [getattr(card, key) for key in ("utilization", "temperature", "power", "clock")]


def test_fields_have_the_units_of_value_or_column():
    first, second = (row.card for row in hlsmi.parse_fields(FIELDS))
    assert (first.index, first.module_id, first.name, first.generation) == (
        0,
        4,
        "HL-225",
        "GAUDI2",
    )
    assert (first.memory_used, first.memory_total) == (768 << 20, 96 << 30)
    assert figures(first) == [0, 26, 87, 1650]
    assert (second.module_id, second.generation) == (6, "GAUDI3")
    assert (second.memory_used, second.memory_total) == (1 << 30, 128 << 30)
    assert figures(second) == [37, None, None, 1200]
    assert not first.simulated


def test_fields_are_found_by_name_in_any_order():
    [row] = hlsmi.parse_fields(
        "a line before\npower.draw [mW], memory.used [GiB], index\n1500, 2, 5\n"
    )
    assert (row.card.index, row.card.module_id, row.card.memory_used) == (5, UNKNOWN, 2 << 30)
    assert (row.card.power, row.card.memory_total, row.card.name) == (1.5, None, "")


def test_unknown_units_are_absent_and_not_guessed():
    [row] = hlsmi.parse_fields("index, memory.used [pages], temperature.aip [F]\n0, 12, 80\n")
    assert (row.card.memory_used, row.card.temperature) == (None, None)


@pytest.mark.parametrize("text", ["", "nothing known\n", "name, index\nHL-225, 0\n"])
def test_output_without_headings_is_rejected(text):
    with pytest.raises(hlsmi.HlSmiUnavailableError, match="no column headings"):
        hlsmi.parse_fields(text)


def test_table_contains_memory_and_processes():
    free, held = hlsmi.parse_table(TABLE.replace("{pid}", "4711"))
    assert (free.card.index, free.card.name, free.bus) == (0, "HL-225", "0000:09:00.0")
    assert (free.card.memory_used, free.card.memory_total) == (768 << 20, 96 << 30)
    assert figures(free.card) == [0, 26, 87, None]
    assert figures(held.card) == [93, None, 190, None]
    assert (free.pids, held.pids) == ((), (4711,))


def test_output_without_cards_is_rejected():
    with pytest.raises(hlsmi.HlSmiUnavailableError, match="does not contain a card"):
        hlsmi.parse_table("+---+\n| HL-SMI Version: 1 |\n+---+\n")


@pytest.fixture
def snapshot(tmp_path, script):
    """Take two snapshots with an hl-smi that runs a script; return the second one."""

    def take(lines):
        program = tmp_path / "hl-smi"
        program.write_text(f"#!/bin/sh\n{lines}")
        program.chmod(0o755)
        code = f"""
            import dataclasses, json, sys
            sys.modules["pyhlml"] = None
            from hpu_magic import monitor
            from hpu_magic.monitor import hlsmi
            hlsmi._TIMEOUT = 1.0
            sys.path.append({str(tmp_path)!r})  # with the vendor's package, see below
            monitor.snapshot()
            print(json.dumps(dataclasses.asdict(monitor.snapshot())))
        """
        vendor = tmp_path / "habana_frameworks" / "torch"
        vendor.mkdir(parents=True)
        (vendor / "__init__.py").touch()
        return json.loads(script(code, PATH=f"{tmp_path}:{os.environ['PATH']}"))

    return take


def answering(text):
    return f"cat <<'END'\n{text}END\n"


def test_hl_smi_replaces_a_missing_binding(snapshot):
    seen = snapshot(answering(FIELDS))
    assert (seen["source"], seen["reason"]) == ("hl-smi", None)
    assert [card["module_id"] for card in seen["cards"]] == [4, 6]


def test_table_is_parsed_if_the_query_is_not_supported(snapshot):
    table = answering(TABLE.replace("{pid}", str(os.getpid())))
    seen = snapshot(f'if [ $# != 0 ]; then echo "unknown option $1" >&2; exit 2; fi\n{table}')
    assert seen["source"] == "hl-smi"
    free, held = seen["cards"]
    assert free["holders"] == []
    [holder] = held["holders"]
    assert holder["pid"] == os.getpid()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("exec sleep 60\n", "hl-smi did not answer within 1 s."),
        ("echo no such device >&2; exit 3\n", "hl-smi exited with code 3: no such device."),
        ("echo hello\n", "The output of hl-smi does not contain a card in a known format."),
    ],
)
def test_failure_of_hl_smi_is_part_of_the_reason(snapshot, lines, reason):
    seen = snapshot(lines)
    assert (seen["source"], seen["cards"]) == ("none", [])
    assert "pip install habana-pyhlml" in seen["reason"]
    assert seen["reason"].endswith(reason)
