"""Test `hl-smi` for the simulated cards: its output and its folder on PATH."""

import os
import re
import shutil
import signal
import subprocess

import pytest
from started_process import started

from hpu_magic import command_line, monitor
from hpu_magic.monitor import hlsmi
from hpu_magic.simulator import activation
from hpu_magic.simulator.cards import hl_smi

PROGRAM = str(hl_smi.BIN / "hl-smi")


@pytest.fixture
def query(tmp_path, monkeypatch):
    """A function that runs the program with two small cards and returns its output."""
    (tmp_path / "cards").mkdir(mode=0o700)
    for name, value in {"CARDS_DIR": tmp_path / "cards", "CARDS": 2, "MEMORY": "2GiB"}.items():
        monkeypatch.setenv(f"HPU_MAGIC_{name}", str(value))

    def run(*options, status=0):
        done = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def held(query):
    """A process that holds the first card and uses 300 MiB of its memory."""
    code = """
        import struct
        from hpu_magic.simulator import cards
        card = cards.acquire()
        struct.pack_into("<q", card.page, 64, 300 << 20)
        print("ready", flush=True)
        input()
    """
    with started(code) as process:
        yield process.pid


def test_table_has_the_vendors_format(query, held):
    text = query()
    assert {len(line) for line in text.splitlines()} == {79}
    first, second = hlsmi.parse_table(text)
    assert (first.card.name, first.card.generation, first.bus) == (
        "HL-225",
        "GAUDI2",
        "ffff:00:00.0",
    )
    assert (first.card.memory_used, first.card.memory_total) == (300 << 20, 2 << 30)
    assert (first.pids, second.pids) == ((held,), ())
    assert (second.card.index, second.card.memory_used, second.card.memory_total) == (1, 0, 2 << 30)
    unknown = {
        (row.card.utilization, row.card.temperature, row.card.power) for row in (first, second)
    }
    assert unknown == {(None, None, None)}


def test_driver_version_is_at_the_position_that_libraries_read(query):
    """The version is in the third line, between the colon and a hyphen."""
    assert query().split("\n")[2].replace(" ", "").split(":")[1] == "1.24.1-simulator|"


def test_fields_have_the_vendors_format(query, held):
    rows = hlsmi.parse_fields(query(f"--query-aip={','.join(hlsmi._FIELDS)}", "--format=csv"))
    assert [(row.card.index, row.card.module_id, row.card.memory_used) for row in rows] == [
        (0, 0, 300 << 20),
        (1, 1, 0),
    ]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "index, memory.used [MiB], power.draw [W]\n0, 300 MiB, N/A\n1, 0 MiB, N/A\n"),
        ("csv,noheader", "0, 300 MiB, N/A\n1, 0 MiB, N/A\n"),
        ("csv,nounits", "index, memory.used [MiB], power.draw [W]\n0, 300, N/A\n1, 0, N/A\n"),
        ("csv,noheader,nounits", "0, 300, N/A\n1, 0, N/A\n"),
    ],
)
def test_format_can_omit_headings_and_units(query, held, form, expected):
    assert query("-Q", "index,memory.used,power.draw", "-f", form) == expected


def test_list_has_name_and_module_id_of_each_card(query):
    listed = query("-L")
    assert listed == (
        "AIP 0: HL-225, simulated (Bus-Id: ffff:00:00.0, UUID: N/A)\n"
        "    Module ID : 0\n"
        "AIP 1: HL-225, simulated (Bus-Id: ffff:01:00.0, UUID: N/A)\n"
        "    Module ID : 1\n"
    )
    # DeepSpeed reads the ids by this pattern.
    assert re.findall(r"Module ID\s+:\s+(\d+)", listed) == ["0", "1"]


def test_query_shows_selected_sections_of_a_card(query, held):
    lines = query("-q", "-d", "memory,BUS", "-i", "ffff:00:00.0").splitlines()
    assert [line.split(":", 1)[0].strip() for line in lines] == [
        "================ HL-SMI LOG ================",
        "Timestamp",
        "HL-SMI Version",
        "Driver Version",
        "Device number",
        "",
        "[0] AIP ffff",
        "Bus",
        "Bus Id",
        "Memory",
        "Total",
        "Used",
        "Free",
    ]
    assert [line.split(": ")[1] for line in lines[-3:]] == ["2048 MiB", "300 MiB", "1748 MiB"]


def test_loop_runs_until_an_interrupt(query):
    command = [PROGRAM, "-l", "0.1", "-Q", "index", "-f", "csv,noheader"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert [program.stdout.readline() for _ in range(5)] == ["0\n", "1\n"] * 2 + ["0\n"]
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 130


def test_version_of_the_simulator(query):
    assert query("-v") == "HL-SMI Version: hl-1.24.1-simulator\n"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("-Q", "index,colour", "-f", "csv"), 2, "unknown field 'colour'"),
        (("-Q", "index", "-f", "xml"), 2, "unknown format 'xml'"),
        (("-Q", "index", "-f", "noheader"), 2, "use csv,noheader"),
        (("-Q", "index"), 1, "-Q requires a format: -f csv"),
        (("-q", "-d", "colours"), 2, "unknown section 'COLOURS'"),
        (("-i", "0000:09:00.0"), 1, "use one of ffff:00:00.0, ffff:01:00.0."),
    ],
)
def test_invalid_options_are_rejected_with_a_fix(query, options, status, message):
    assert message in query(*options, status=status)


def test_invalid_setting_of_the_cards_is_one_sentence(query, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "many")
    assert query(status=1).startswith(
        "hl-smi: HPU_MAGIC_CARDS='many' is not a valid number of cards;"
    )


def test_simulated_processes_and_their_children_find_it(forked_script):
    code = """
        import os, shutil, subprocess, hpu_magic.simulator
        os.environ["PATH"] = os.defpath  # the parent of this process may be simulated too
        before = shutil.which("hl-smi")
        hpu_magic.simulator.activate()
        hpu_magic.simulator.activate()
        found = os.path.dirname(shutil.which("hl-smi"))
        print(before, os.environ["PATH"].split(os.pathsep).count(found))
        print(subprocess.run("hl-smi -v", shell=True, capture_output=True, text=True).stdout)
    """
    assert forked_script(code).splitlines()[:2] == ["None 1", "HL-SMI Version: hl-1.24.1-simulator"]


def test_linked_program_needs_no_path_variables(query, tmp_path):
    """Some programs start `hl-smi` with an empty environment."""
    (tmp_path / "hl-smi").symlink_to(PROGRAM)
    done = subprocess.run(
        f"{tmp_path}/hl-smi", shell=True, env={}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.count("HL-225") == 8, done.stderr


def test_vendors_program_has_precedence_and_the_monitor_ignores_this_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    activation.activate(announce=False)
    hl_smi.offer()
    assert shutil.which("hl-smi") == PROGRAM
    assert not hlsmi.installed()
    with pytest.raises(hlsmi.HlSmiUnavailableError, match="hl-smi is not on PATH"):
        hlsmi.read()
    assert monitor.snapshot().source == "simulator"

    vendors = tmp_path / "hl-smi"
    vendors.write_text("#!/bin/sh\n")
    vendors.chmod(0o755)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{tmp_path}")
    assert hlsmi.program() == str(vendors), "in any order"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.defpath}")
    hl_smi.offer()
    assert shutil.which("hl-smi") == str(vendors)


def test_subcommand_has_the_same_output_unless_cards_are_real(query, tmp_path, monkeypatch, capsys):
    assert command_line.main(["hl-smi", "-L"]) == 0
    assert capsys.readouterr().out == query("-L")
    (tmp_path / "hl-smi").write_text("#!/bin/sh\n")
    (tmp_path / "hl-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line.main(["hl-smi", "-L"]) == 1
    assert capsys.readouterr().err == (
        f"hpu-magic: The cards are not simulated: hl-smi is at {tmp_path}/hl-smi.\n"
    )


def test_import_loads_no_torch(script):
    code = """
        import sys
        from hpu_magic.simulator.cards import hl_smi
        print("torch" in sys.modules)
    """
    assert script(code) == "False\n"
