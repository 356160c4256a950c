"""With LOG_LEVEL_PT_FALLBACK, the bridge logs each CPU fallback."""

from __future__ import annotations

import re

import pytest

CODE = """
import sys
import torch

x = torch.eye(3, device="hpu").add(0)
x.cpu()
sys.stderr = sys.stdout  # after the banner
torch.linalg.eigvals(x).cpu()
torch.linalg.eigvals(x).cpu()
(x + 1).cpu()
from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher
EventDispatcher.instance().deliver()
"""
LINE = (
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]\[PT_FALLBACK\]\[debug\] CPU fallback (\S+) at (.+):(\d+)"
)


@pytest.mark.parametrize("lazy", ["0", "1"])
@pytest.mark.parametrize(("level", "console"), [("1", "true"), ("0", "false"), ("2", "true")])
def test_fallbacks_are_logged_with_their_lines(forked_script, tmp_path, lazy, level, console):
    printed = forked_script(
        CODE,
        simulated=True,
        LOG_LEVEL_PT_FALLBACK=level,
        ENABLE_CONSOLE=console,
        HABANA_LOGS=str(tmp_path),
        PT_HPU_LAZY_MODE=lazy,
        ID="3",
    )
    log = tmp_path / "3" / "pytorch_log.txt"
    if level == "2":
        assert (printed, log.exists()) == ("", False)
        return
    lines = [re.fullmatch(LINE, line) for line in log.read_text().splitlines()]
    assert [found and (found[1], found[3]) for found in lines] == [
        ("aten::_linalg_eigvals", "8"),
        ("aten::_linalg_eigvals", "9"),
    ]
    assert printed == (log.read_text() if console == "true" else "")
