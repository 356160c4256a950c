import os
import re

import pytest
from made_machine import MadeMachine

import hpu_magic


@pytest.fixture
def made(tmp_path, request, golden):
    """An empty machine with one simulated card; after the test, findings are compared with a file.

    The golden files are ``findings_of_...``, with a section per test.
    """
    machine = MadeMachine(tmp_path)
    yield machine
    if machine.texts:
        text = "\n".join(machine.texts).replace(str(tmp_path), "FOLDER")
        text = text.replace(f"hpu_magic-{os.geteuid()}", "hpu_magic-UID")
        text = text.replace(hpu_magic.__version__, "VERSION").replace(f"({os.getpid()})", "(PID)")
        text = re.sub(r"the disk has [\d.]+ \w+ free", "the disk has SIZE free", text)
        group = request.node.path.stem.removeprefix("test_")
        golden(f"findings_of_{group}", text, section=request.node.name, varying=False)
