from __future__ import annotations

from pathlib import Path

import pytest
from made_machine import MadeMachine


@pytest.fixture
def made(tmp_path: Path) -> MadeMachine:
    """An empty machine with one simulated card."""
    return MadeMachine(tmp_path)
