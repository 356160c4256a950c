"""Driver, cards, memory, shared memory, huge pages and the private folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_machine import GIB, card

from hpu_magic import private_folder
from hpu_magic.health import Machine
from hpu_magic.health.checks import cards, host
from hpu_magic.monitor import Holder, Snapshot, hlsmi

STRANGER = 65534


def states(found):
    return [state for state, _ in found]


def test_machine_without_card_and_driver(made):
    message = "The machine has no Gaudi card on its bus, and the simulator needs no driver."
    assert made.check(cards.driver) == [("green", message)]
    made.simulated = False
    message = "The vendor's software is installed, but the machine has no Gaudi card or driver."
    assert made.check(cards.driver) == [("red", message)]


def test_driver_is_loaded_or_missing(made):
    made.with_gaudi(cards=2)
    message = "The habanalabs driver is loaded, with 2 Gaudi cards on the bus."
    assert made.check(cards.driver) == [("green", message)]
    (made.root / "sys/module/habanalabs/version").unlink()
    (made.root / "sys/module/habanalabs").rmdir()
    assert made.check(cards.driver) == [("green", message)]  # it answers, as in a container
    made.cards = Snapshot((), "none", "No driver.")
    message = "The machine has 2 Gaudi cards on its bus, but the habanalabs driver is not loaded."
    assert made.check(cards.driver) == [("red", message)]


def test_simulator_on_a_machine_with_real_cards(made):
    made.with_gaudi()
    made.simulated = True
    [(state, text)] = made.check(cards.driver)
    assert state == "amber"
    assert text.startswith("The machine has 1 Gaudi card, but cards are simulated because")


def test_visible_cards(made):
    made.with_gaudi(cards=2)
    assert made.check(cards.visible) == [("green", "2 cards visible, GAUDI2.")]
    made.cards = Snapshot((card(0), card(1, error="It is lost.")), "hlml")
    assert made.check(cards.visible) == [
        ("green", "2 cards visible, GAUDI2."),
        ("red", "HPU 1 cannot be read: It is lost."),
    ]
    made.cards = Snapshot((card(0),), "hlml")
    [(state, text)] = made.check(cards.visible)
    assert (state, text) == (
        "amber",
        "1 card visible, GAUDI2. The bus has 2: others may be lost or not in this container.",
    )
    made.cards = Snapshot((), "none", "The Gaudi driver is not loaded (hlmlInit: code 9).")
    message = "No card is visible: The Gaudi driver is not loaded (hlmlInit: code 9)."
    assert made.check(cards.visible) == [("red", message)]


def test_holders_of_cards(made):
    made.with_gaudi(cards=2)
    holder = Holder(41, "train.ipynb", "ada", idle=7200.0)
    made.cards = Snapshot((card(0, holders=(holder,), used=90 * GIB), card(1)), "hlml")
    message = "1 of 2 free. HPU 0: process 41 (train.ipynb, idle for 2 h)."
    assert made.check(cards.held) == [("green", message)]
    hidden = Holder(0, "a process of another container", None)
    made.cards = Snapshot((card(0, holders=(holder,)), card(1, holders=(hidden,))), "hlml")
    message = (
        "No card is free for another process. HPU 0: process 41 (train.ipynb, idle for 2 h). "
        "HPU 1: a process of another container."
    )
    assert made.check(cards.held) == [("amber", message)]
    own = Holder(os.getpid(), "here.ipynb", "ada")
    made.cards = Snapshot((card(0, holders=(own,)),), "hlml")
    assert states(made.check(cards.held)) == ["green"]
    made.cards = Snapshot((), "none", "none")
    assert made.check(cards.held) == []


def test_memory_without_a_known_holder(made):
    made.with_gaudi(cards=2)
    assert made.check(cards.orphaned_memory) == []
    made.cards = Snapshot((card(0), card(1, used=80 * GIB)), "hlml")
    [(state, text)] = made.check(cards.orphaned_memory)
    assert state == "amber"
    assert text.startswith("HPU 1 has 80.0 / 96 GiB in use without a visible holder:")
    assert made.check(cards.held) == [("green", "1 of 2 free.")]


def test_device_files(made):
    assert made.check(cards.device_files) == []
    made.with_gaudi()
    message = "The driver is loaded, but there are no device files in /dev/accel."
    assert made.check(cards.device_files) == [("red", message)]
    made.file("/dev/accel/accel0")
    made.file("/dev/accel/accel_controlD0")
    message = "This user can open all 1 device files of the cards."
    assert made.check(cards.device_files) == [("green", message)]


@pytest.fixture
def place():
    """A folder that other users can open, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_device_files_that_the_user_cannot_open(place):
    code = f"""
        import os, pathlib, sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from made_machine import MadeMachine
        from hpu_magic.health.checks import cards, storage
        os.setgid({STRANGER}); os.setuid({STRANGER})
        made = MadeMachine(pathlib.Path({str(place / "open")!r}))
        made.with_gaudi()
        first = made.file("/dev/accel/accel0"); second = made.file("/dev/accel/accel1")
        second.chmod(0)
        print(made.check(cards.device_files))
        first.chmod(0o400)
        print(made.check(cards.device_files))
        made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = {str(place / "shut")!r}
        made.environment["HABANA_LOGS"] = {str(place / "shut")!r}
        print(made.check(storage.recipe_cache), made.check(storage.logs))
        """
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "shut").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    shut = place / "shut"
    cache = f"The folder {shut} of PT_HPU_RECIPE_CACHE_CONFIG is not writable for this user."
    logs = f"The log folder {shut} is not writable for this user."
    assert done.stdout.splitlines() == [
        str([("amber", "This user cannot read and write accel1.")]),
        str([("red", "This user cannot read and write accel0, accel1.")]),
        f"{[('red', cache)]} {[('amber', logs)]}",
    ]


def meminfo(total, available, pages=0):
    return (
        f"MemTotal:       {total >> 10} kB\nMemAvailable:   {available >> 10} kB\n"
        f"HugePages_Total:     {pages}\nHugepagesize:       2048 kB\n"
    )


def test_host_memory(made):
    assert made.check(host.memory) == []
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    assert made.check(host.memory) == [("green", "The host has 4.00 / 64 GiB of memory in use.")]
    made.file("/proc/meminfo", meminfo(64 * GIB, GIB // 2))
    assert made.check(host.memory) == [("red", "The host has only 512 MiB of 64 GiB memory free.")]
    made.with_gaudi()
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    [(state, text)] = made.check(host.memory)
    assert (state, "A card has more (96 GiB)" in text) == ("amber", True)


def test_memory_limit_of_a_container(made):
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    made.file("/sys/fs/cgroup/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/memory.max", "max\n")
    assert made.check(host.memory) == [("green", "The host has 4.00 / 64 GiB of memory in use.")]
    made.file("/sys/fs/cgroup/memory.max", str(8 * GIB))
    message = "The container or job has 1.00 / 8 GiB of memory in use."
    assert made.check(host.memory) == [("green", message)]
    made.file("/proc/self/cgroup", "0::/slurm/job_7\n")
    made.file("/sys/fs/cgroup/slurm/job_7/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/slurm/job_7/memory.max", str(4 * GIB))
    message = "The container or job has 1.00 / 4 GiB of memory in use."
    assert made.check(host.memory) == [("green", message)]


def test_shared_memory(made):
    message = "/dev/shm does not exist: loaders with workers cannot pass their batches."
    assert made.check(host.shared_memory) == [("red", message)]
    (made.root / "dev/shm").mkdir(parents=True)
    status = os.statvfs(made.root / "dev/shm")
    [finding] = host.shared_memory(made.machine)
    assert finding.values["total"] == status.f_blocks * status.f_frsize


@pytest.mark.parametrize(
    ("total", "free", "state", "start"),
    [
        (16 * GIB, 15 * GIB, "green", "/dev/shm has 15.0 GiB of 16 GiB free."),
        (64 << 20, 64 << 20, "amber", "/dev/shm has 64 MiB: workers"),
        (16 * GIB, 1 << 20, "red", "/dev/shm has 1.00 MiB of 16 GiB free: workers"),
    ],
)
def test_size_of_shared_memory(made, monkeypatch, total, free, state, start):
    size = SimpleNamespace(f_frsize=1, f_blocks=total, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda folder: size)
    [(found, text)] = made.check(host.shared_memory)
    assert (found, text.startswith(start)) == (state, True)


def test_huge_pages(made):
    assert made.check(host.huge_pages) == []
    made.file("/proc/meminfo", meminfo(GIB, GIB))
    message = "0 huge pages of 2 MiB are reserved. The simulator uses none."
    assert made.check(host.huge_pages) == [("green", message)]
    made.with_gaudi()
    [(state, text)] = made.check(host.huge_pages)
    assert (state, "may need them for host buffers" in text) == ("amber", True)
    made.file("/proc/meminfo", meminfo(GIB, GIB, 512))
    message = "512 huge pages of 2 MiB are reserved, 1 GiB."
    assert made.check(host.huge_pages) == [("green", message)]
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
    message = f"The first session will create {first / name}, which only you can open."
    assert made.check(host.own_folder) == [("green", message)]
    assert not (first / name).exists()
    assert private_folder.made() == first / name
    message = f"Only you can open the folder {first / name}."
    assert made.check(host.own_folder) == [("green", message)]
    (first / name).chmod(0o755)
    [(state, text)] = made.check(host.own_folder)
    assert state == "amber"
    assert text.startswith(f"Other users can open {first / name}, so {second / name} is used inst")


def test_no_place_for_a_private_folder(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (tmp_path / "file",))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    [(state, text)] = made.check(host.own_folder)
    assert state == "red"
    assert text.startswith("No folder exists or can be created that only you can open:")


def test_doctor_does_not_wait_for_a_driver_that_hangs(tmp_path, script):
    (tmp_path / "pyhlml.py").write_text("import time; time.sleep(100)")
    code = """
        from hpu_magic.health import machine
        machine._PATIENCE = 0.1
        print(machine.Machine.here().cards)
        """
    shot = Snapshot((), "none", "The driver did not answer within 0.1 s.")
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    assert script(code, PYTHONPATH=path) == f"{shot}\n"


def test_invalid_folder_of_simulated_cards_is_named(monkeypatch):
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


def test_hl_smi_reports_versions(tmp_path, monkeypatch):
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
    with pytest.raises(hlsmi.HlSmiUnavailableError, match="ended with code 3"):
        hlsmi.versions()


def test_home_exists_and_is_writable(made):
    home = made.home
    assert made.check(host.home) == [("green", f"The home {home} is writable.")]
    for invalid in (home / "absent", home / "file"):
        (home / "file").touch()
        made.home = invalid
        [(state, text)] = made.check(host.home)
        assert state == "amber"
        assert text.startswith(f"The home {invalid} is not writable for this user: caches, logs")
    made.home = Path("~")
    [(state, text)] = made.check(host.home)
    assert state == "amber"
    assert text.startswith("The system has no home for this user, and HOME is not set")
