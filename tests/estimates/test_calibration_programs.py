"""Test dry runs of programs that repeat measured training jobs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from calibration import models, programs  # noqa: E402  (needs the path above)

import hpu_magic  # noqa: E402
from hpu_magic.dry_runs.request import Request  # noqa: E402
from hpu_magic.dry_runs.run import dry_run  # noqa: E402


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_program_takes_the_time_of_the_estimate(shell, forked_dry_runs, monkeypatch, mode):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", str(int(mode == "lazy")))
    arguments = ["gpt-85m", "--batch=64", "--tokens=11"]
    program = str(TOOLS / "calibration" / "program.py")
    found = dry_run(Request(program, arguments, card="gaudi2"), output=subprocess.DEVNULL)
    assert found.steps
    expected = hpu_magic.estimate(
        models.built("gpt-85m", attention="eager"),
        models.inputs("gpt-85m", 64, 11),
        card="gaudi2",
        mode=mode,
        dtype="bf16",
        optimizer="fusedadamw",
    )
    assert found.time.seconds == pytest.approx(expected.seconds, rel=0.02)


def test_page_lists_training_jobs_with_their_published_values():
    text = (TOOLS.parent / "docs" / "estimates.md").read_text()
    text = text[text.index("## Jobs as programs\n") :].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.e+]+) \| [^|]+%\) \| [^|]+ \|$", text, re.MULTILINE)
    published = [(f"{one.row['model']}, {one.job}", f"{one.value:.4g}") for one in programs.rows()]
    assert rows == [row for row in published if row in rows]
    assert len(rows) == text.count("\n| ") - 1 > 20


def test_jobs_that_are_not_programs_are_listed_with_the_cause(shell, monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n| job | published | estimate | dry run |\n|---|---|---|---|\n\nEnd\n"
    )
    monkeypatch.setattr(programs, "_PAGE", page)
    name = "llama-2-13b, 16 x gaudi2, bf16"
    (found,) = programs.compared([name])
    assert found.dry_run is None
    (row,) = (line for line in page.read_text().splitlines() if line.startswith(f"| {name}"))
    assert row.endswith("| needs Megatron-LM |")
    assert page.read_text().endswith("\n\nEnd\n")
