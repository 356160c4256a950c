"""Fixtures that run code dry, in forks of a process that has imported torch."""

import textwrap

import pytest

from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run


@pytest.fixture
def new_processes():
    """Start new processes instead of forks."""


@pytest.fixture(autouse=True)
def _forks(request):
    if "new_processes" not in request.fixturenames:
        request.getfixturevalue("forked_dry_runs")


@pytest.fixture
def dry(tmp_path):
    """Run code dry, and return the result and the script's output."""

    def run(code, *arguments, **options):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(code))
        with (tmp_path / "output.txt").open("w") as output:
            result = dry_run(Request(str(script), arguments, **options), output=output)
        return result, (tmp_path / "output.txt").read_text()

    return run
