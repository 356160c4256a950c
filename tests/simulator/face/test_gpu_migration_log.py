"""Test the log of GPU migration."""

from __future__ import annotations

import re

import pytest

SCRIPT = """
import torch
x = torch.ones(2)
for step in range(3):
    y = x.cuda()
torch.cuda.empty_cache()
torch.nn.DataParallel(torch.nn.Linear(1, 1), device_ids=[0, 1])
torch.zeros(1, device="cuda:1")
torch.cuda.get_device_capability(0)
"""
ENTRIES = [
    ("x.cuda()", "hpu_match", "torch.Tensor.cuda() --> to('hpu')", True),
    (
        "torch.cuda.empty_cache()",
        "hpu_mismatch",
        "torch.cuda.empty_cache() --> no effect. "
        "The memory pool is the whole card, so there is nothing to free.",
        False,
    ),
    (
        "torch.nn.DataParallel(",
        "hpu_modified",
        "torch.nn.DataParallel(<Linear>, device_ids=[0, 1]) --> "
        "one card; for several cards, start one process per card",
        False,
    ),
    (
        "torch.zeros(",
        "hpu_match",
        "torch.zeros(1, device='cuda:1') --> torch.zeros(1, device='hpu:0')",
        True,
    ),
    (
        "torch.cuda.get_device_capability(0)",
        "hpu_modified",
        "torch.cuda.get_device_capability(0) --> The driver's version as (major, minor).",
        False,
    ),
]


@pytest.mark.parametrize("level", ["1", "2", "3"])
def test_log_names_each_line_once(forked_script, tmp_path, capfd, level):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    printed = forked_script(
        f"""
        import contextlib, io, runpy, sys
        screen = io.StringIO()
        with contextlib.redirect_stderr(screen):
            runpy.run_path({str(script)!r})
        print(screen.getvalue())
        """,
        simulated=True,
        PT_HPU_GPU_MIGRATION="1",
        GPU_MIGRATION_LOG_LEVEL=level,
        HABANA_LOGS=str(tmp_path / "logs"),
    )
    [log] = (tmp_path / "logs" / "gpu_migration_logs").iterdir()
    lines = SCRIPT.splitlines()
    expected = []
    for start, kind, call, of_torch in ENTRIES:
        if level == "3" and of_torch:
            continue
        [number] = [number for number, line in enumerate(lines, 1) if start in line]
        context = lines[number - 1].strip()
        expected.append(f"{script}:{number}\n    [context]: {context}\n    [{kind}]: {call}\n")
    stamp = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] "
    assert re.split(stamp, log.read_text()) == ["", *expected]
    assert [entry in printed for entry in expected] == [level == "1"] * len(expected)
    assert re.fullmatch(r"gpu_migration_\d+\.log", log.name)


def test_wrong_level_is_refused(forked_script):
    printed = forked_script(
        """
        import torch
        try:
            import habana_frameworks.torch.gpu_migration
        except ValueError as error:
            print(error)
        """,
        simulated=True,
        GPU_MIGRATION_LOG_LEVEL="loud",
    )
    assert printed.splitlines()[-1] == (
        "GPU_MIGRATION_LOG_LEVEL='loud' is not a log level; use 1 (log file and screen), 2 (log "
        "file) or 3 (log file, without changes to device arguments)."
    )


def test_log_that_cannot_be_written_warns_once(migrated, tmp_path):
    (tmp_path / "taken").write_text("")
    assert migrated(
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            devices = [str(torch.ones(1).cuda().device), str(torch.ones(1, device="cuda").device)]
        print(json.dumps([devices, len(caught), "set HABANA_LOGS" in str(caught[0].message)]))
        """,
        GPU_MIGRATION_LOG_LEVEL="2",
        HABANA_LOGS=str(tmp_path / "taken"),
    ) == [["hpu:0", "hpu:0"], 1, True]
