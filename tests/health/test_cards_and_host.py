"""Test the checks of driver, cards, memory, shared memory, huge pages and private folder."""

import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_machine import GIB, card

from hpu_magic import private_folder
from hpu_magic.health import Machine
from hpu_magic.health.checks import cards, host_memory, user_folders
from hpu_magic.monitor import Holder, Snapshot, hlsmi

STRANGER = 65534


def test_missing_card_and_driver_are_allowed_only_with_the_simulator(made):
    assert made.check(cards.driver) == ["green"]
    made.simulated = False
    assert made.check(cards.driver) == ["red"]


def test_missing_driver_is_red(made):
    made.with_gaudi(cards=2)
    assert made.check(cards.driver) == ["green"]
    (made.root / "sys/module/habanalabs/version").unlink()
    (made.root / "sys/module/habanalabs").rmdir()
    assert made.check(cards.driver) == ["green"]  # the driver responds, as in a container
    made.cards = Snapshot((), "none", "No driver.")
    assert made.check(cards.driver) == ["red"]


def test_simulated_cards_on_a_machine_with_real_cards_are_amber(made):
    made.with_gaudi()
    made.simulated = True
    assert made.check(cards.driver) == ["amber"]


def test_unreadable_and_invisible_cards_are_reported(made):
    made.with_gaudi(cards=2)
    assert made.check(cards.visible) == ["green"]
    made.cards = Snapshot((card(0), card(1, error="It is lost.")), "hlml")
    assert made.check(cards.visible) == ["green", "red"]
    made.cards = Snapshot((card(0),), "hlml")
    assert made.check(cards.visible) == ["amber"]
    made.cards = Snapshot((), "none", "The Gaudi driver is not loaded (hlmlInit: code 9).")
    assert made.check(cards.visible) == ["red"]


def test_holders_of_cards_are_named_and_amber_if_no_card_is_free(made):
    made.with_gaudi(cards=2)
    holder = Holder(41, "train.ipynb", "ada", idle=7200.0)
    made.cards = Snapshot((card(0, holders=(holder,), used=90 * GIB), card(1)), "hlml")
    assert made.check(cards.held) == ["green"]
    hidden = Holder(0, "a process of another container", None)
    made.cards = Snapshot((card(0, holders=(holder,)), card(1, holders=(hidden,))), "hlml")
    assert made.check(cards.held) == ["amber"]
    own = Holder(os.getpid(), "here.ipynb", "ada")
    made.cards = Snapshot((card(0, holders=(own,)),), "hlml")
    assert made.check(cards.held) == ["green"]
    made.cards = Snapshot((), "none", "none")
    assert made.check(cards.held) == []


def test_memory_in_use_without_a_holder_is_amber(made):
    made.with_gaudi(cards=2)
    assert made.check(cards.orphaned_memory) == []
    made.cards = Snapshot((card(0), card(1, used=80 * GIB)), "hlml")
    assert made.check(cards.orphaned_memory) == ["amber"]
    assert made.check(cards.held) == ["green"]


def test_missing_device_files_are_red(made):
    assert made.check(cards.device_files) == []
    made.with_gaudi()
    assert made.check(cards.device_files) == ["red"]
    made.file("/dev/accel/accel0")
    made.file("/dev/accel/accel_controlD0")
    assert made.check(cards.device_files) == ["green"]


@pytest.fixture
def place():
    """A folder that other users can open, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_files_and_folders_without_permission_are_reported(place, script, golden):
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
        made.check(cards.device_files)
        first.chmod(0o400)
        made.check(cards.device_files)
        made.environment["PT_HPU_RECIPE_CACHE_CONFIG"] = {str(place / "shut")!r}
        made.environment["HABANA_LOGS"] = {str(place / "shut")!r}
        made.check(storage.recipe_cache), made.check(storage.logs)
        print("\\n".join(made.texts), end="")
        """
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "shut").mkdir()
    texts = script(code)
    assert re.findall("^(red|amber|green):", texts, re.MULTILINE) == [
        *("amber", "red", "red", "amber")
    ]
    golden("findings_without_permission", texts)


def meminfo(total, available, pages=0):
    return (
        f"MemTotal:       {total >> 10} kB\nMemAvailable:   {available >> 10} kB\n"
        f"HugePages_Total:     {pages}\nHugepagesize:       2048 kB\n"
    )


def test_little_free_host_memory_is_reported(made):
    assert made.check(host_memory.memory) == []
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    assert made.check(host_memory.memory) == ["green"]
    made.file("/proc/meminfo", meminfo(64 * GIB, GIB // 2))
    assert made.check(host_memory.memory) == ["red"]
    made.with_gaudi()
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    assert made.check(host_memory.memory) == ["amber"]  # less than the memory of a card


def test_container_memory_limit_replaces_the_host_memory(made):
    made.file("/proc/meminfo", meminfo(64 * GIB, 60 * GIB))
    made.file("/sys/fs/cgroup/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/memory.max", "max\n")
    assert made.check(host_memory.memory) == ["green"]
    made.file("/sys/fs/cgroup/memory.max", str(8 * GIB))
    assert made.check(host_memory.memory) == ["green"]
    made.file("/proc/self/cgroup", "0::/slurm/job_7\n")
    made.file("/sys/fs/cgroup/slurm/job_7/memory.current", str(GIB))
    made.file("/sys/fs/cgroup/slurm/job_7/memory.max", str(4 * GIB))
    assert made.check(host_memory.memory) == ["green"]


def test_missing_shared_memory_is_red(made):
    assert made.check(host_memory.shared_memory) == ["red"]
    (made.root / "dev/shm").mkdir(parents=True)
    status = os.statvfs(made.root / "dev/shm")
    [finding] = host_memory.shared_memory(made.machine)
    assert finding.values["total"] == status.f_blocks * status.f_frsize


@pytest.mark.parametrize(
    ("total", "free", "state"),
    [
        (16 * GIB, 15 * GIB, "green"),
        (64 << 20, 64 << 20, "amber"),
        (16 * GIB, 1 << 20, "red"),
    ],
)
def test_little_shared_memory_is_reported(made, monkeypatch, total, free, state):
    size = SimpleNamespace(f_frsize=1, f_blocks=total, f_bavail=free)
    monkeypatch.setattr(os, "statvfs", lambda folder: size)
    assert made.check(host_memory.shared_memory) == [state]


def test_missing_huge_pages_are_amber_with_real_cards(made):
    assert made.check(host_memory.huge_pages) == []
    made.file("/proc/meminfo", meminfo(GIB, GIB))
    assert made.check(host_memory.huge_pages) == ["green"]
    made.with_gaudi()
    assert made.check(host_memory.huge_pages) == ["amber"]
    made.file("/proc/meminfo", meminfo(GIB, GIB, 512))
    assert made.check(host_memory.huge_pages) == ["green"]
    made.environment["PT_HPU_HUGE_PAGES_LIMIT_MB"] = "2048"
    [finding] = host_memory.huge_pages(made.machine)
    assert finding.state == "amber"
    assert finding.fix == "Run `sudo sysctl -w vm.nr_hugepages=1024`, or lower the limit."


def test_private_folder_that_others_can_open_is_amber(made, tmp_path, monkeypatch):
    first, second = tmp_path / "shm", tmp_path / "tmp"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (first, second))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "none")
    name = f"hpu_magic-{os.geteuid()}"
    assert made.check(user_folders.own_folder) == ["green"]
    assert not (first / name).exists()
    assert private_folder.made() == first / name
    assert made.check(user_folders.own_folder) == ["green"]
    (first / name).chmod(0o755)
    assert made.check(user_folders.own_folder) == ["amber"]


def test_missing_private_folder_is_red(made, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (tmp_path / "file",))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    assert made.check(user_folders.own_folder) == ["red"]


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
    with pytest.raises(hlsmi.HlSmiUnavailableError, match="exited with code 3"):
        hlsmi.versions()


def test_missing_or_unwritable_home_is_amber(made):
    home = made.home
    assert made.check(user_folders.home) == ["green"]
    (home / "file").touch()
    for invalid in (home / "absent", home / "file", Path("~")):
        made.home = invalid
        assert made.check(user_folders.home) == ["amber"]
