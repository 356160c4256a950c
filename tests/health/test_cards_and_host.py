"""Driver, cards, memory, shared memory, huge pages and the private folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from made_machine import GIB, card

from hpu_magic import private_folder
from hpu_magic.health import Machine
from hpu_magic.health.checks import cards, host
from hpu_magic.monitor import Holder, Snapshot, hlsmi

STRANGER = 65534


def states(found):
    return [state for state, _ in found]


def test_no_card_and_no_driver(made):
    said = "The machine has no Gaudi card on its bus, and no driver is needed to simulate."
    assert made.ask(cards.driver) == [("green", said)]
    made.simulated = False
    said = "The vendor's software is installed, but neither a Gaudi card nor its driver is here."
    assert made.ask(cards.driver) == [("red", said)]


def test_the_driver_is_loaded_or_not(made):
    made.with_gaudi(cards=2)
    said = "The driver habanalabs is loaded, with 2 Gaudi cards on the bus."
    assert made.ask(cards.driver) == [("green", said)]
    (made.root / "sys/module/habanalabs/version").unlink()
    (made.root / "sys/module/habanalabs").rmdir()
    assert made.ask(cards.driver) == [("green", said)]  # it answers, as into a container
    made.cards = Snapshot((), "none", "No driver.")
    said = "The machine has 2 Gaudi cards on its bus, and the driver habanalabs is not loaded."
    assert made.ask(cards.driver) == [("red", said)]


def test_real_cards_beside_the_simulator(made):
    made.with_gaudi()
    made.simulated = True
    [(state, text)] = made.ask(cards.driver)
    assert state == "amber"
    assert text.startswith("The machine has 1 Gaudi card, and yet cards are simulated")


def test_cards_seen(made):
    made.with_gaudi(cards=2)
    assert made.ask(cards.seen) == [("green", "2 cards seen, GAUDI2.")]
    made.cards = Snapshot((card(0), card(1, error="It is lost.")), "hlml")
    assert made.ask(cards.seen) == [
        ("green", "2 cards seen, GAUDI2."),
        ("red", "HPU 1 cannot be read: It is lost."),
    ]
    made.cards = Snapshot((card(0),), "hlml")
    [(state, text)] = made.ask(cards.seen)
    assert (state, text) == (
        "amber",
        "1 card seen, GAUDI2. The bus has 2: others may be kept from this container, or lost.",
    )
    made.cards = Snapshot((), "none", "The Gaudi driver is not loaded (hlmlInit: code 9).")
    said = "No card is seen: The Gaudi driver is not loaded (hlmlInit: code 9)."
    assert made.ask(cards.seen) == [("red", said)]


def test_cards_that_are_held(made):
    made.with_gaudi(cards=2)
    holder = Holder(41, "train.ipynb", "ada", idle=7200.0)
    made.cards = Snapshot((card(0, holders=(holder,), used=90 * GIB), card(1)), "hlml")
    said = "1 of 2 free. HPU 0: train.ipynb, idle for 2 h (process 41)."
    assert made.ask(cards.held) == [("green", said)]
    hidden = Holder(0, "a process of another container", None)
    made.cards = Snapshot((card(0, holders=(holder,)), card(1, holders=(hidden,))), "hlml")
    said = (
        "No card is free: the next process gets none. HPU 0: train.ipynb, idle for 2 h "
        "(process 41). HPU 1: a process of another container."
    )
    assert made.ask(cards.held) == [("amber", said)]
    own = Holder(os.getpid(), "here.ipynb", "ada")
    made.cards = Snapshot((card(0, holders=(own,)),), "hlml")
    assert states(made.ask(cards.held)) == ["green"]
    made.cards = Snapshot((), "none", "none")
    assert made.ask(cards.held) == []


def test_memory_in_use_by_nobody_known(made):
    made.with_gaudi(cards=2)
    assert made.ask(cards.orphaned_memory) == []
    made.cards = Snapshot((card(0), card(1, used=80 * GIB)), "hlml")
    [(state, text)] = made.ask(cards.orphaned_memory)
    assert state == "amber"
    assert text.startswith("HPU 1 has 80.0 / 96 GiB in use by nobody who can be seen:")
    assert made.ask(cards.held) == [("green", "1 of 2 free.")]


def test_device_files(made):
    assert made.ask(cards.device_files) == []
    made.with_gaudi()
    said = "The driver is loaded, but there are no device files in /dev/accel."
    assert made.ask(cards.device_files) == [("red", said)]
    made.file("/dev/accel/accel0")
    made.file("/dev/accel/accel_controlD0")
    said = "This user may open all device files of the cards, 1."
    assert made.ask(cards.device_files) == [("green", said)]


@pytest.fixture
def place():
    """A folder that others may enter, as they may not those of tests."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_device_files_that_are_closed(place):
    code = f"""
        import os, pathlib, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from made_machine import MadeMachine
        from hpu_magic.health.checks import cards, storage
        os.setgid({STRANGER}); os.setuid({STRANGER})
        made = MadeMachine(pathlib.Path({str(place / "open")!r}))
        made.with_gaudi()
        one = made.file("/dev/accel/accel0"); two = made.file("/dev/accel/accel1")
        two.chmod(0)
        print(made.ask(cards.device_files))
        one.chmod(0o400)
        print(made.ask(cards.device_files))
        made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = {str(place / "shut")!r}
        made.environment["HABANA_LOGS"] = {str(place / "shut")!r}
        print(made.ask(storage.recipe_cache), made.ask(storage.logs))
        """
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "shut").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str([("amber", "This user may not read and write accel1.")]),
        str([("red", "This user may not read and write accel0, accel1.")]),
        str(
            [
                (
                    "red",
                    f"The folder {place / 'shut'} of PT_HPU_RECIPE_CACHE_CONFIG cannot be "
                    "written by this user.",
                )
            ]
        )
        + " "
        + str(
            [
                (
                    "amber",
                    f"{place / 'shut'}, where the logs are to be written, cannot be written by "
                    "this user.",
                )
            ]
        ),
    ]


def meminfo(total, available, pages=0):
    return (
        f"MemTotal:       {total >> 10} kB\nMemAvailable:   {available >> 10} kB\n"
        f"HugePages_Total:     {pages}\nHugepagesize:       2048 kB\n"
    )


def test_host_memory(made):
    assert made.ask(host.memory) == []
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    assert made.ask(host.memory) == [("green", "The host has 4.00 / 64 GiB of memory in use.")]
    made.file("/proc/meminfo", meminfo(64 * GIB, GIB // 2))
    assert made.ask(host.memory) == [("red", "The host has only 512 MiB of 64 GiB memory free.")]
    made.with_gaudi()
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    [(state, text)] = made.ask(host.memory)
    assert (state, "less than a card has (96 GiB)" in text) == ("amber", True)


def test_memory_of_a_container(made):
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    made.file("/sys/fs/cgroup/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/memory.max", "max\n")
    assert made.ask(host.memory) == [("green", "The host has 4.00 / 64 GiB of memory in use.")]
    made.file("/sys/fs/cgroup/memory.max", str(8 * GIB))
    said = "The container or job has 1.00 / 8 GiB of memory in use."
    assert made.ask(host.memory) == [("green", said)]
    made.file("/proc/self/cgroup", "0::/slurm/job_7\n")
    made.file("/sys/fs/cgroup/slurm/job_7/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/slurm/job_7/memory.max", str(4 * GIB))
    said = "The container or job has 1.00 / 4 GiB of memory in use."
    assert made.ask(host.memory) == [("green", said)]


def test_shared_memory(made):
    said = "There is no /dev/shm: loaders with workers cannot hand over their batches."
    assert made.ask(host.shared_memory) == [("red", said)]
    (made.root / "dev/shm").mkdir(parents=True)
    status = os.statvfs(made.root / "dev/shm")
    [finding] = host.shared_memory(made.machine)
    assert finding.values["total"] == status.f_blocks * status.f_frsize
    judged = host.judged_shared_memory
    assert judged(16 * GIB, 15 * GIB).text == "/dev/shm has 15.0 GiB of 16 GiB free."
    small = judged(64 << 20, 64 << 20)
    assert (small.state, small.text.startswith("/dev/shm has 64 MiB: loaders")) == ("amber", True)
    full = judged(16 * GIB, 1 << 20)
    assert (full.state, full.text.startswith("/dev/shm has 1.00 MiB of 16 GiB left")) == (
        "red",
        True,
    )


def test_huge_pages(made):
    assert made.ask(host.huge_pages) == []
    made.file("/proc/meminfo", meminfo(GIB, GIB))
    said = "0 huge pages of 2 MiB are set aside. The simulator takes none."
    assert made.ask(host.huge_pages) == [("green", said)]
    made.with_gaudi()
    [(state, text)] = made.ask(host.huge_pages)
    assert (state, "may take host buffers" in text) == ("amber", True)
    made.file("/proc/meminfo", meminfo(GIB, GIB, 512))
    assert made.ask(host.huge_pages) == [("green", "512 huge pages of 2 MiB are set aside, 1 GiB.")]
    made.environment["PT_HPU_HUGE_PAGES_LIMIT_MB"] = "2048"
    [finding] = host.huge_pages(made.machine)
    assert finding.state == "amber"
    assert finding.fix == "Run `sudo sysctl -w vm.nr_hugepages=1024`, or allow less."


def test_the_private_folder(made, tmp_path, monkeypatch):
    first, second = tmp_path / "shm", tmp_path / "tmp"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (first, second))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "none")
    name = f"hpu_magic-{os.geteuid()}"
    said = f"The folder {first / name} will be yours alone; the first session makes it."
    assert made.ask(host.own_folder) == [("green", said)]
    assert not (first / name).exists()
    assert private_folder.made() == first / name
    said = f"The folder {first / name} is yours alone."
    assert made.ask(host.own_folder) == [("green", said)]
    (first / name).chmod(0o755)
    [(state, text)] = made.ask(host.own_folder)
    assert state == "amber"
    assert text.startswith(f"{first / name} is not yours alone, so {second / name} is used:")


def test_no_place_for_a_private_folder(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (tmp_path / "file",))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    [(state, text)] = made.ask(host.own_folder)
    assert state == "red"
    assert text.startswith("There is no folder that only you may enter:")


def test_a_driver_that_hangs_is_not_waited_for(tmp_path, script):
    (tmp_path / "pyhlml.py").write_text("import time; time.sleep(100)")
    code = """
        from hpu_magic.health import machine
        machine._PATIENCE = 0.1
        print(machine.Machine.here().cards)
        """
    shot = Snapshot((), "none", "The driver has not answered for 0.1 s.")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    assert script(code, PYTHONPATH=path) == f"{shot}\n"


def test_a_folder_of_cards_that_cannot_be_is_named(monkeypatch):
    folder = f"/tmp/{'a' * 300}"
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", folder)
    shot = Machine.here().cards
    assert (shot.cards, shot.source) == ((), "simulator")
    assert "File name too long" in shot.reason
    assert folder in shot.reason


def hl_smi(folder, script):
    program = folder / "hl-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_hl_smi_tells_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    table = (
        "| HL-SMI Version:         hl-1.22.0-fw-61.0.0 |\\n"
        "| Driver Version:              1.22.0-a3b9c1d |\\n"
        "| Nic Driver Version:          1.21.9-32ff121 |\\n"
    )
    firmware = "Preboot version hl-gaudi2-1.22.0-fw-61.0.0-sec-9\\nhl-gaudi2-1.22.0-fw-61.0.0"
    hl_smi(
        tmp_path, f'case "$1" in --fw-versions) printf "{firmware}";; *) printf "{table}";; esac'
    )
    assert hlsmi.versions() == hlsmi.Versions("1.22.0-a3b9c1d", ("1.22.0",))
    hl_smi(tmp_path, f'case "$1" in --fw-versions) exit 1;; *) printf "{table}";; esac')
    assert hlsmi.versions() == hlsmi.Versions("1.22.0-a3b9c1d", ())
    hl_smi(tmp_path, "echo nothing")
    assert hlsmi.versions() == hlsmi.Versions(None, ())
    hl_smi(tmp_path, "exit 3")
    with pytest.raises(hlsmi.HlSmiUnavailable, match="ended with code 3"):
        hlsmi.versions()


def test_a_home_is_there_and_can_be_written(made):
    home = made.home
    assert made.ask(host.home) == [("green", f"The home {home} can be written.")]
    for gone in (home / "gone", home / "file"):
        (home / "file").touch()
        made.home = gone
        [(state, text)] = made.ask(host.home)
        assert state == "amber"
        assert text.startswith(f"The home {gone} cannot be written by this user: caches, logs")
    made.home = Path("~")
    [(state, text)] = made.ask(host.home)
    assert state == "amber"
    assert text.startswith("The system knows no home of this user, and HOME names none")
