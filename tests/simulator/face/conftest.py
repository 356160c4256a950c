"""Fixture for scripts with GPU migration."""

from __future__ import annotations

import json
import textwrap

import pytest

LIBRARY = "import habana_frameworks.torch.gpu_migration\nimport json, torch\n"


@pytest.fixture
def migrated(forked_script):
    """Run a script with GPU migration and return the JSON in its last line of output."""

    def run(code, lazy="0", **environment):
        printed = forked_script(
            LIBRARY + textwrap.dedent(code),
            simulated=True,
            PT_HPU_LAZY_MODE=lazy,
            **environment,
        )
        return json.loads(printed.splitlines()[-1])

    return run
