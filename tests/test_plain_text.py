"""Test escaping of untrusted text in terminals and pages."""

import json
import os
import subprocess
import sys

import pytest
from started_process import started_python

from hpu_magic.health.finding import Finding
from hpu_magic.plain_text import printable
from hpu_magic.runtime.present.report import Report
from hpu_magic.runtime.present.table import Table

# A sequence that clears the screen, an override of the direction, and a byte that is not UTF-8.
NAME = b"a\x1b[2J\xe2\x80\xaeb\x80\x07.py"
SHOWN = r"a\x1b[2J\u202eb\udc80\x07.py"
HOLD = """
from hpu_magic.simulator import cards
cards.acquire()
print(flush=True)
input()
"""
ACQUIRE = """
from hpu_magic.simulator import cards
try:
    cards.acquire()
except RuntimeError as busy:
    print(busy)
"""
COMMAND = "import sys; from hpu_magic.command_line import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 漢字 😀", "plain ä 漢字 😀"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("a\rb\x00\x7f", r"a\rb\x00\x7f"),
        ("\u202e\u2066\u200f\u2028", r"\u202e\u2066\u200f\u2028"),
        ("\udc80\ud800", r"\udc80\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\nb\tc", r"a\nb\tc"),
    ],
)
def test_unprintable_characters_are_escaped(text, shown):
    assert printable(text) == shown
    assert printable(text).encode()


def test_kept_characters_are_not_escaped():
    assert printable("a\n\x1bb", keep="\n") == "a\n\\x1bb"


@pytest.fixture
def holder(tmp_path, monkeypatch):
    """A process with unprintable characters in its name that holds the only card."""
    monkeypatch.setenv("HPU_MAGIC_CARDS_DIR", str(tmp_path / "cards"))
    monkeypatch.setenv("HPU_MAGIC_CARDS", "1")
    with open(os.path.join(os.fsencode(tmp_path), NAME), "w") as code:
        code.write(HOLD)
    with started_python(NAME, cwd=tmp_path) as process:
        yield process


@pytest.mark.parametrize(
    "arguments",
    [("hl-smi",), ("hl-smi", "-q"), ("top", "--once"), ("top", "--once", "0")],
)
def test_commands_escape_names_of_processes(holder, arguments):
    done = subprocess.run([sys.executable, "-c", COMMAND, *arguments], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.replace("\n", "").replace("\t", "").isprintable()
    # The page of a card wraps the name.
    assert (SHOWN in "".join(text.split())) == (arguments != ("hl-smi", "-q"))


def test_error_of_a_busy_card_is_escaped(holder):
    done = subprocess.run([sys.executable, "-c", ACQUIRE], capture_output=True, check=True)
    text = done.stdout.decode()
    assert SHOWN in text
    assert text.rstrip("\n").isprintable()


def test_pages_and_metrics_are_escaped(holder):
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "top", "--json"], capture_output=True, check=True
    )
    [card] = json.loads(done.stdout)["cards"]
    assert SHOWN in card["holders"][0]["command"]


def test_reports_are_escaped_in_terminals_and_pages():
    class One(Report):
        def title(self):
            return "title \x1b[31m"

        def rows(self):
            return [("label\u202e", "value\udc80")]

        def notes(self):
            return ["note\x9b\nsecond line"]

    class Many(Table, One):
        def columns(self):
            return ("column\x07",)

        def lines(self):
            return [("cell\x1b",)]

    for report in (One(), Many()):
        for text in (repr(report), report._repr_html_()):
            assert text.replace("\n", "").isprintable()
            assert r"title \x1b[31m" in text
            assert "note\\x9b\nsecond line" in text


def test_findings_of_the_doctor_are_escaped():
    finding = Finding("host", "red", "{name} is\x1b[2J", "end {name}", private={"name": "b\u202e"})
    assert finding.filled() == (r"b\u202e is\x1b[2J", r"end b\u202e")
