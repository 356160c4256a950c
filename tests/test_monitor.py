"""What the monitor tells about the machine's cards."""

import os
import pwd
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hpu_magic import monitor
from hpu_magic.monitor import processes

LIBRARY = Path("/usr/lib/habanalabs/libhlml.so")

pytestmark = pytest.mark.skipif(LIBRARY.exists(), reason="the machine has real Gaudi cards")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_CARDS", "2")
    monkeypatch.setenv("HPU_MAGIC_MEMORY", "4GiB")
    monkeypatch.delenv("HPU_MAGIC_GENERATION", raising=False)
    return tmp_path / "cards"


@pytest.fixture
def start():
    running = []

    def start_process(code):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        process.stdout.readline()
        return process

    yield start_process
    for process in running:
        process.kill()
        process.communicate()


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
    assert "import struct" in holder.command
    assert len(holder.command) <= 80
    assert (free.memory_used, free.holders) == (0, ())


def test_simulated_cards_invent_no_measurements():
    for card in monitor.snapshot().cards:
        assert card.simulated
        assert (card.utilization, card.temperature, card.power) == (None, None, None)


def test_holder_is_gone_when_its_process_is(start):
    owner = start("""
        from hpu_magic.simulator import cards
        cards.acquire()
        print(flush=True), input()
    """)
    assert monitor.snapshot().cards[0].holders
    owner.kill()
    owner.wait()
    assert monitor.snapshot().cards[0].holders == ()


def test_damaged_page_leaves_its_memory_unknown_and_the_other_card_readable(directory):
    directory.mkdir()
    (directory / "card0").write_text("not a page")
    damaged, sound = monitor.snapshot().cards
    assert damaged.memory_used is None
    assert str(directory / "card0") in damaged.error
    assert (sound.memory_used, sound.error) == (0, None)


def test_wrong_setting_is_the_reason_for_showing_nothing(monkeypatch):
    monkeypatch.setenv("HPU_MAGIC_CARDS", "many")
    seen = monitor.snapshot()
    assert seen.cards == ()
    assert "HPU_MAGIC_CARDS='many'" in seen.reason


def test_missing_library_is_quiet_and_is_the_reason_where_the_vendor_package_is(
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


def test_missing_binding_says_how_to_install_it(tmp_path):
    (tmp_path / "habana_frameworks" / "torch").mkdir(parents=True)
    (tmp_path / "habana_frameworks" / "torch" / "__init__.py").touch()
    code = f"""
        import sys
        sys.modules["pyhlml"] = None
        sys.path.append({str(tmp_path)!r})
        from hpu_magic import monitor
        print(monitor.snapshot().reason)
    """
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert "pip install habana-pyhlml" in shown.stdout


def test_snapshot_loads_no_torch_and_acquires_no_card(directory):
    code = """
        import sys
        from hpu_magic import monitor
        monitor.snapshot()
        print("torch" in sys.modules, [len(card.holders) for card in monitor.snapshot().cards])
    """
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "False [0, 0]"
    assert not directory.exists()


def test_holders_of_real_cards_are_found_by_their_open_device_nodes(tmp_path):
    own, control, gone = (tmp_path / str(pid) / "fd" for pid in (os.getpid(), 1, 999_999_999))
    for descriptors in (own, control, gone):
        descriptors.mkdir(parents=True)
    (own / "5").symlink_to("/dev/accel/accel3")
    (own / "6").symlink_to("/dev/accel/accel3")
    (own / "7").symlink_to("/dev/null")
    (control / "3").symlink_to("/dev/accel/accel_controlD3")
    (gone / "3").symlink_to("/dev/hl1")
    (tmp_path / "self").mkdir()
    found = processes.device_holders(tmp_path)
    assert [holder.pid for holder in found[3]] == [os.getpid()]
    assert "python" in found[3][0].command
    assert found[1][0].command == "ended meanwhile"
    assert set(found) == {1, 3}
