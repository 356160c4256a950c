"""Dry runs in forks of a process that has imported torch, and a fixture that runs code dry."""

import textwrap

import pytest

from hpu_magic.dry_runs.process import Processes
from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run


@pytest.fixture
def new_processes():
    """Start new processes instead of forks."""


@pytest.fixture(autouse=True)
def _forks(request, monkeypatch):
    """Start the ranks of dry runs as forks, because the import of torch takes seconds."""
    if "new_processes" not in request.fixturenames:
        python = request.getfixturevalue("forked_python")
        monkeypatch.setattr(Processes, "create", python.popen)


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
