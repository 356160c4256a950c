"""A fixture that runs code in a dry run."""

import textwrap

import pytest

from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run


@pytest.fixture
def dry(tmp_path):
    """Run code in a dry run, and return the result and the script's output."""

    def run(code, *arguments, **options):
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(code))
        with (tmp_path / "output.txt").open("w") as output:
            result = dry_run(Request(str(script), arguments, **options), output=output)
        return result, (tmp_path / "output.txt").read_text()

    return run
