"""Operators never crash, even with invalid arguments."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from in_modes import run
from operator_tensors import rejects

PROGRAM = Path(__file__).with_name("wrong_arguments.py")


def calls(*options, program=(PROGRAM,)):
    return subprocess.run(
        [sys.executable, *program, *options],
        env={**os.environ, "HPU_MAGIC_SIMULATOR": "1"},
        cwd=PROGRAM.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_none_is_rejected_for_a_tensor():
    x = torch.ones(2, 3, device="hpu").bfloat16()
    for operator, arguments, name in (
        (torch.ops.hpu.scaled_masked_softmax, (x, None, 1.0), "mask"),
        (torch.ops.hpu.rms_norm, (None, x, 1.0), "data_in"),
    ):
        message = f"hpu::{operator.__name__} needs its argument '{name}', but it is None."
        with rejects(message, RuntimeError, NotImplementedError):
            run(operator, *arguments)
    assert torch.ops.hpu.cast_to_fp8_v2(x, None, dtype=torch.float8_e5m2)[0].shape == x.shape


@pytest.mark.parametrize(
    ("options", "errors_per_operator"),
    [(("--count", "12"), 5), (("--empty",), 0)],
    ids=["wrong arguments", "empty tensors"],
)
def test_calls_return_results_or_raise_errors_without_a_crash(options, errors_per_operator):
    run = calls(*options)
    assert run.returncode == 0, run.stderr[-3000:]
    operators, results, errors = map(int, run.stdout.split())
    assert operators > 70
    assert results > operators  # some calls are valid
    assert errors > errors_per_operator * operators


@pytest.mark.once
def test_internal_assertion_of_the_engine_is_reported_as_a_fault():
    call = "_use(_operator(schema)(*args, **kwargs))"
    program = PROGRAM.read_text(encoding="utf-8")
    assert call in program
    program = "-c", program.replace(call, "raise RuntimeError('INTERNAL ASSERT')")
    run = calls("--count", "1", "--only", "sum_fp8", program=program)
    assert run.returncode == 1
    assert run.stderr.count("0 hpu::sum_fp8") == 1
