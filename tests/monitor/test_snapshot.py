"""Test snapshots of the machine's cards."""

import dataclasses
import os
import pwd
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from started_process import started

from hpu_magic import monitor
from hpu_magic.monitor import processes

LIBRARY = Path("/usr/lib/habanalabs/libhlml.so")

pytestmark = pytest.mark.skipif(LIBRARY.exists(), reason="the machine has real Gaudi cards")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_CARDS", "2")
    monkeypatch.setenv("HPU_MAGIC_MEMORY", "4GiB")
    monkeypatch.delenv("HPU_MAGIC_CARD", raising=False)
    return tmp_path / "cards"


@pytest.fixture
def start():
    with ExitStack() as running:
        yield lambda code: running.enter_context(started(code))


def test_simulated_cards_show_memory_and_holder_of_another_process(start):
    owner = start("""
        import struct
        from hpu_magic.simulator import cards
        struct.pack_into("<q", cards.acquire().page, 64, 3 << 20)
        print(flush=True), input()
    """)
    seen = monitor.snapshot()
    assert (seen.source, seen.reason) == ("simulator", None)
    held, free = seen.cards
    assert (held.index, held.module_id, held.name, held.generation) == (0, 0, "GAUDI2", "GAUDI2")
    assert (held.memory_used, held.memory_total) == (3 << 20, 4 << 30)
    [holder] = held.holders
    assert (holder.pid, holder.user) == (owner.pid, pwd.getpwuid(os.getuid()).pw_name)
    assert holder.command == f"{os.path.basename(sys.executable)} -c"
    assert (free.memory_used, free.holders) == (0, ())


def test_simulated_cards_have_no_measurements():
    for card in monitor.snapshot().cards:
        assert card.simulated
        assert (card.utilization, card.temperature, card.power) == (None, None, None)


def test_holder_disappears_with_its_process(start):
    owner = start("""
        from hpu_magic.simulator import cards
        cards.acquire()
        print(flush=True), input()
    """)
    assert monitor.snapshot().cards[0].holders
    owner.kill()
    owner.wait()
    assert monitor.snapshot().cards[0].holders == ()


def page(magic=b"HPUCARD\0", version=1, capacity=1 << 30, kind=4, in_use=0, length=4096):
    header = struct.pack("<8sqqqqq", magic, version, capacity, kind, 1, 0)
    return (header.ljust(64, b"\0") + struct.pack("<7q", in_use, *[0] * 6)).ljust(length, b"\0")


@pytest.mark.parametrize(
    "content",
    [
        b"not a page",
        page(length=4095),
        page(length=4097),
        page(magic=b"CARDPAGE"),
        page(version=99),
        page(kind=77),
        page(capacity=0),
        page(in_use=-1),
        page(in_use=(1 << 30) + 1),
    ],
)
def test_invalid_page_is_reported_and_hides_no_other_card(directory, content):
    directory.mkdir()
    (directory / "card0").write_bytes(content)
    damaged, intact = monitor.snapshot().cards
    assert damaged.memory_used is None
    assert str(directory / "card0") in damaged.error
    assert (intact.memory_used, intact.error) == (0, None)


def test_page_without_an_owner_is_a_free_card(directory):
    directory.mkdir()
    (directory / "card0").write_bytes(page(in_use=5))
    card = monitor.snapshot().cards[0]
    assert (card.memory_used, card.holders, card.error) == (0, (), None)


def test_invalid_setting_is_the_reason_of_an_empty_snapshot(monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "many")
    seen = monitor.snapshot()
    assert seen.cards == ()
    assert "HPU_MAGIC_CARDS='many'" in seen.reason


def test_missing_library_is_the_reason_if_the_vendor_package_is_installed(
    tmp_path, monkeypatch, capfd
):
    pytest.importorskip("pyhlml.hlml_lib")
    (tmp_path / "habana_frameworks" / "torch").mkdir(parents=True)
    (tmp_path / "habana_frameworks" / "torch" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    seen = monitor.snapshot()
    assert (seen.cards, seen.source) == ((), "none")
    assert str(LIBRARY) in seen.reason
    assert capfd.readouterr() == ("", "")


def test_missing_binding_is_reported_with_its_installation(tmp_path, script):
    (tmp_path / "habana_frameworks" / "torch").mkdir(parents=True)
    (tmp_path / "habana_frameworks" / "torch" / "__init__.py").touch()
    code = f"""
        import sys
        sys.modules["pyhlml"] = None
        sys.path.append({str(tmp_path)!r})
        from hpu_magic import monitor
        print(monitor.snapshot().reason)
    """
    assert "pip install habana-pyhlml" in script(code)


def test_snapshot_imports_no_torch_and_acquires_no_card(directory, script):
    code = """
        import sys
        from hpu_magic import monitor
        monitor.snapshot()
        print("torch" in sys.modules, [len(card.holders) for card in monitor.snapshot().cards])
    """
    assert script(code).strip() == "False [0, 0]"
    assert not directory.exists()


def test_reading_the_cards_imports_no_large_package(script):
    code = """
        import sys
        from hpu_magic.server import reader
        reader.read()
        print([name for name in ("torch", "numpy", "IPython", "bokeh") if name in sys.modules])
    """
    assert script(code).strip() == "[]"


def test_holders_of_real_cards_have_device_nodes_open(tmp_path):
    own, control, gone = (tmp_path / str(pid) / "fd" for pid in (os.getpid(), 1, 999_999_999))
    for descriptors in (own, control, gone):
        descriptors.mkdir(parents=True)
    (own / "5").symlink_to("/dev/accel/accel3")
    (own / "6").symlink_to("/dev/accel/accel3")
    (own / "7").symlink_to("/dev/null")
    (control / "3").symlink_to("/dev/accel/accel_controlD3")
    (gone / "3").symlink_to("/dev/hl1")
    (tmp_path / "self").mkdir()
    found = processes.device_holders(tmp_path).by_minor
    assert [holder.pid for holder in found[3]] == [os.getpid()]
    assert "python" in found[3][0].command
    assert found[1][0].command == "ended process"
    assert set(found) == {1, 3}


def test_minor_numbers_are_found_by_bus_address(tmp_path):
    device = tmp_path / "devices" / "0000:9A:00.0"
    device.mkdir(parents=True)
    for node in ("accel/accel2", "accel/accel_controlD2", "habanalabs/hl5"):
        (tmp_path / node).mkdir(parents=True)
        (tmp_path / node / "device").symlink_to(
            device if "accel" in node else "/devices/0000:0b:00.0"
        )
    assert processes.minors_by_bus(tmp_path) == {"0000:9a:00.0": 2, "0000:0b:00.0": 5}


def test_ancestors_are_sorted_from_the_nearest(start):
    child = start("""
        import os, sys
        from subprocess import PIPE, Popen
        with Popen([sys.executable, "-c", "input()"], stdin=PIPE) as grandchild:
            print(grandchild.pid, flush=True)
            input()
            grandchild.communicate(b"\\n")
    """)
    grandchild = int(child.printed)
    above = [parent.pid for parent in psutil.Process().parents()]
    assert above[0] == os.getppid()
    assert processes.ancestors([grandchild, child.pid]) == {
        grandchild: [child.pid, os.getpid(), *above],
        child.pid: [os.getpid(), *above],
    }
    child.communicate("\n")
    assert processes.ancestors([grandchild]) == {grandchild: []}


CARD = monitor.CardReading(2, 2, "HL-225", "GAUDI2", False, 60 << 30, 96 << 30)


@pytest.mark.parametrize(
    ("changes", "hidden", "reason"),
    [
        ({}, True, "HPU 2 is in use by processes of other users, which only root can see."),
        (
            {},
            False,
            "HPU 2 is in use by processes that are not visible, for example in another container.",
        ),
        ({"memory_used": 768 << 20}, False, None),
        ({"memory_used": 768 << 20}, True, None),
        ({"memory_used": None}, True, None),
        ({"holders": (monitor.Holder(7, "python", None),)}, True, None),
    ],
)
def test_memory_of_invisible_processes_is_reported(changes, hidden, reason):
    assert monitor._hidden_holders((dataclasses.replace(CARD, **changes),), hidden) == reason


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_unreadable_processes_are_detected(script):
    code = """
        import os
        from hpu_magic.monitor.processes import device_holders
        os.setuid(65534)
        print(device_holders().hidden)
    """
    assert script(code).strip() == "True"
    assert not processes.device_holders().hidden


def test_ancestors_are_found_for_any_process_name(tmp_path):
    odd = tmp_path / "a) 1 (b"
    shutil.copy(shutil.which("sleep"), odd)
    with subprocess.Popen([odd, "60"]) as process:
        try:
            ancestors = processes.ancestors([process.pid])[process.pid]
        finally:
            process.kill()
    assert ancestors[0] == os.getpid()
    assert ancestors[1] == os.getppid()
    assert processes.ancestors([process.pid]) == {process.pid: []}


def test_holder_of_an_unreadable_card_is_unknown():
    card = monitor.CardReading(
        0, 0, "HL-225", "GAUDI2", False, None, None, error="The card is lost."
    )
    assert card.held_by() == "an unknown holder (The card is lost.)"
