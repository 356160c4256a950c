"""Golden files: the complete text of each report in ``tests/golden``, without varying values."""

import re
import sys
from pathlib import Path

_FOLDER = Path(__file__).with_name("golden")
_SECTION = re.compile(r"^== (.*)\n", re.MULTILINE)

_NUMBER = r"\d+(?:[.,]\d+)*"
_VARYING = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\x1b\[[\d;]*m", ""),
        (r"/tmp/[\w./-]+", "PATH"),
        (r"\bHPU \d+ \(simulated", "HPU N (simulated"),
        (r"\b(pid|process|PID) \d+", r"\1 PID"),
        (rf"(?:under )?{_NUMBER} ?(?:ns|us|µs|ms|s|min|h)\b(?: \d+ (?:s|min)\b)?", "TIME"),
        (rf"{_NUMBER} (?=(?:steps|samples|rows|batches|tokens)(?:/s| per second))", "RATE "),
        (r"(?<![\w.])\d+(?:\.\d+){2,}(?:[a-z]+\d+)?(?:[+-][\w.]+)?", "VERSION"),
        (r"(?<=\S) {2,}", "  "),  # columns are as wide as their values
        (r"(?m) +$", ""),
    )
]


def normalized(text: str) -> str:
    """Replace times, rates, process IDs, paths and versions, which differ between runs."""
    text = text.replace(sys.prefix, "PREFIX")
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text.strip("\n") + "\n"


def _sections(name: str) -> dict[str, str]:
    """Return the sections of a golden file by name; the text before the first one has no name."""
    path = _FOLDER / f"{name}.txt"
    first, *parts = _SECTION.split(path.read_text()) if path.exists() else [""]
    return {"": first} | dict(zip(parts[::2], parts[1::2], strict=True))


def read_golden(name: str, section: str = "") -> str:
    """Return the text of a golden file or of one of its sections."""
    return _sections(name).get(section) or "missing in tests/golden: run make golden\n"


def write_golden(name: str, section: str, text: str) -> None:
    """Write a golden file or one of its sections."""
    sections = _sections(name) | {section: text}
    parts = [f"== {each}\n{sections[each]}" for each in sorted(sections) if each]
    (_FOLDER / f"{name}.txt").write_text(sections[""] + "".join(parts))
