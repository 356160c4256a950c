"""Test the table of tested releases."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import versions


@pytest.mark.parametrize(
    ("output", "passed", "failed", "skipped"),
    [
        ("...\n10 failed, 202 passed, 9 skipped, 1 warning in 234.39s (0:03:54)", 202, 10, 9),
        ("5 passed, 2 errors in 1.00s", 5, 2, 0),
        ("1 error in 2.00s", 0, 1, 0),
        ("Segmentation fault", 0, 1, 0),
        ("", 0, 1, 0),
    ],
)
def test_counts_are_read_from_the_last_line_of_pytest(output, passed, failed, skipped):
    expected = {"passed": passed, "failed": failed, "skipped": skipped}
    assert versions.counts(output) == expected


def test_row_replaces_only_its_previous_row(tmp_path):
    table = tmp_path / "versions.md"
    table.write_text("head\n| 2.6 | old |\n| 2.8 | kept |\n")
    versions.write(table, "2.6", {"torch": "2.6.0", "passed": "3"})
    row = "| 2.6 | 2.6.0 | - | - | - | - | - | 3 | - | - | - | - |"
    assert table.read_text() == f"head\n{row}\n| 2.8 | kept |\n"


def test_each_combination_has_a_row():
    rows = versions.TABLE.read_text()
    assert all(f"\n| {each.name} |" in rows for each in versions.COMBINATIONS)


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Run `main` with a temporary table and return the folders of the combinations."""
    table = tmp_path / "versions.md"
    table.write_text("".join(f"| {each.name} | - |\n" for each in versions.COMBINATIONS))
    folders = []

    def run(chosen, folder, quick):
        folders.append(folder)
        (folder / "installed").touch()
        return {"tests": "quick" if quick else "all", "passed": "1", "failed": "0"}

    monkeypatch.setattr(versions, "TABLE", table)
    monkeypatch.setattr(versions, "_run", run)

    def main(*arguments):
        assert versions.main(list(arguments)) == 0
        return folders, table.read_text()

    return main


def test_environments_are_deleted_after_their_run(ran):
    folders, table = ran("2.6", "2.8")
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)
    assert table.count("| all | 1 | 0 |") == 2


def test_quick_run_omits_tests_and_is_marked(ran):
    assert all((versions.PROJECT / suite).exists() for suite in versions.EXHAUSTIVE)
    _, table = ran("--quick", "2.8")
    assert table.count("| quick | 1 | 0 |") == 1


def test_kept_environments_are_used_by_the_next_run(ran, tmp_path):
    kept = tmp_path / "kept"
    for _ in range(2):
        folders, _ = ran("--keep", str(kept), "2.8")
    assert folders == [kept / "2.8"] * 2
    assert (kept / "2.8" / "installed").exists()


def test_unknown_combination_is_reported(capsys):
    assert versions.main(["1.0"]) == 2
    assert "1.0 is unknown; use 2.6" in capsys.readouterr().out
