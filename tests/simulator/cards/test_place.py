"""Test the folder of the simulated cards, which other users cannot open."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hpu_magic import private_folder
from hpu_magic.simulator import cards
from hpu_magic.simulator.cards import place

STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(autouse=True)
def open_to_all(tmp_path, monkeypatch):
    """Two folders like /dev/shm and /tmp, and one to which only the user can write."""
    monkeypatch.delenv("HPU_MAGIC_CARDS_DIR", raising=False)
    monkeypatch.setenv("HPU_MAGIC_CARDS", "1")
    folders = []
    for name in ("shm", "tmp"):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(0o1777)
        folders.append(folder)
    monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", tuple(folders))
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "run")
    (tmp_path / "run" / str(os.geteuid())).mkdir(parents=True, mode=0o700)
    return folders


def own(folder):
    return folder / f"hpu_magic-{os.geteuid()}"


def test_private_folder_is_in_the_first_public_folder(open_to_all):
    found = place.directory()
    assert found == own(open_to_all[0]) == place.existing_directory()
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_snapshot_creates_no_folder(open_to_all):
    [card] = cards.snapshot()
    assert (card.holder, card.error, card.in_use) == (None, None, 0)
    assert place.existing_directory() is None
    assert not any(list(folder.iterdir()) for folder in open_to_all)


def test_folder_that_cannot_be_created_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "file" / "cards"))
    with pytest.raises(RuntimeError, match=r"file/cards, which cannot be created \(Not a dir"):
        place.directory()


def taken_by_a_file(name):
    name.write_text("")


def taken_by_a_link(name):
    (name.parent / "elsewhere").mkdir(mode=0o700)
    name.symlink_to(name.parent / "elsewhere")


def open_to_everybody(name):
    name.mkdir()
    name.chmod(0o777)


def belonging_to_another(name):
    name.mkdir(mode=0o700)
    os.chown(name, STRANGER, STRANGER)


SQUATTERS = [
    taken_by_a_file,
    taken_by_a_link,
    open_to_everybody,
    pytest.param(belonging_to_another, marks=as_root),
]


@pytest.mark.parametrize("squat", SQUATTERS)
def test_invalid_folder_is_skipped(open_to_all, squat):
    squat(own(open_to_all[0]))
    assert place.existing_directory() is None
    assert place.directory() == own(open_to_all[1]) == place.existing_directory()
    [card] = cards.snapshot()
    assert (card.holder, card.error) == (None, None)


@pytest.mark.parametrize("squat", SQUATTERS)
def test_runtime_folder_is_used_if_public_folders_are_invalid(open_to_all, tmp_path, squat):
    for folder in open_to_all:
        squat(own(folder))
    assert place.directory() == tmp_path / "run" / str(os.geteuid()) / "hpu_magic"


def test_removal_of_an_invalid_folder_does_not_move_the_cards(open_to_all):
    taken_by_a_file(own(open_to_all[0]))
    before = place.directory()
    own(open_to_all[0]).unlink()
    assert place.directory() == place.existing_directory() == before


@as_root
def test_other_user_cannot_replace_the_folder(monkeypatch):
    with tempfile.TemporaryDirectory() as shared:  # other users cannot open pytest's own folders
        os.chmod(shared, 0o1777)
        monkeypatch.setattr(private_folder, "_OPEN_TO_ALL", (Path(shared),))
        before = place.directory()
        code = (
            f"import os; os.setgid({STRANGER}); os.setuid({STRANGER})\n"
            f"try: os.rename({str(before)!r}, {str(before)!r} + '-gone')\n"
            "except PermissionError: print('refused')\n"
            f"try: os.listdir({str(before)!r})\n"
            "except PermissionError: print('refused')\n"
        )
        call = [sys.executable, "-c", code]
        done = subprocess.run(call, capture_output=True, text=True, timeout=60)
        assert done.stdout == "refused\nrefused\n", done.stderr
        assert place.directory() == before


def test_error_without_any_folder_contains_the_fix(open_to_all, monkeypatch, tmp_path):
    monkeypatch.setattr(private_folder, "_RUNTIME", tmp_path / "missing")
    unnamed = 4_000_000_000  # a user without a name, as in containers
    monkeypatch.setattr(os, "geteuid", lambda: unnamed)
    for folder in open_to_all:
        taken_by_a_file(own(folder))
    with pytest.raises(
        RuntimeError, match=r"folder that only you can open, .*; set HPU_MAGIC_CARDS_DIR"
    ):
        place.directory()


def test_processes_with_other_environments_find_the_same_card(tmp_path):
    """Examples are a system service and a kernel in a login session."""
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from hpu_magic.simulator import cards\nfrom hpu_magic import private_folder\n"
        f"private_folder._OPEN_TO_ALL = (Path({str(tmp_path / 'shm')!r}),)\n"
    )
    bare = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    bare |= {"HPU_MAGIC_CARDS": "1"}
    login = bare | {
        "XDG_RUNTIME_DIR": str(tmp_path / "run" / str(os.geteuid())),
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path),
    }
    owner = subprocess.Popen(
        [sys.executable, "-c", code + "cards.acquire(); print(flush=True); sys.stdin.read()"],
        env=login,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    try:
        owner.stdout.readline()
        look = code + "print(cards.snapshot()[0].holder.pid)"
        seen = subprocess.run(
            [sys.executable, "-c", look], env=bare, capture_output=True, text=True, timeout=60
        )
        assert seen.stdout == f"{owner.pid}\n", seen.stderr
    finally:
        owner.kill()
        owner.communicate()
