"""The simulated device, and scripts with GPU migration."""

from __future__ import annotations

import json
import textwrap

import pytest

from hpu_magic.simulator import activate

activate(announce=False)  # test modules import the bridge

LIBRARY = "import habana_frameworks.torch.gpu_migration\nimport json, torch\n"


@pytest.fixture
def migrated(forked_script):
    """A function that runs a script with GPU migration and decodes the JSON in its last line."""

    def run(code, lazy="0", **environment):
        code = LIBRARY + textwrap.dedent(code)
        printed = forked_script(code, simulated=True, PT_HPU_LAZY_MODE=lazy, **environment)
        return json.loads(printed.splitlines()[-1])

    return run
