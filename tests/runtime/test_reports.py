"""Reports as values: attributes, ``to_dict()`` and ``to_frame()``."""

from __future__ import annotations

import json

import pytest

import hpu_magic
from hpu_magic.errors import HPUError
from hpu_magic.runtime.present.report import plain_value


@pytest.mark.parametrize("line", ["%hpu", "%hpu_mode", "%hpu_flags", "%hpu_memory", "%hpu_ledger"])
def test_every_report_is_a_dict_that_json_represents(run, torch, line):
    report = run(f"report = {line}\nreport").result
    values = report.to_dict()
    assert json.loads(json.dumps(values)) == values


def test_the_fields_of_a_report_are_the_keys_of_its_dict(run, torch, shell):
    shell.user_ns["x"] = torch.ones(4, device="hpu")
    report = run("%hpu_time -n 2 -r 1 -o timed x + 1").result
    assert report.to_dict()["runs"] == report.runs == 2
    assert report.to_dict()["steady"] == report.steady


def test_a_table_is_a_data_frame(run):
    pandas = pytest.importorskip("pandas")
    report = hpu_magic.flags("PT_HPU_LAZY_MODE")
    frame = report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(report.columns())
    assert frame.values.tolist() == [list(line) for line in report.lines()]


def test_a_data_frame_without_pandas_is_refused(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(HPUError, match="pip install pandas"):
        hpu_magic.flags("PT_HPU_LAZY_MODE").to_frame()


def test_values_without_a_plain_form_are_named_by_their_class():
    assert plain_value({("a", 1): {2}, "b": object()}) == {"a, 1": [2], "b": "object"}


def test_every_refusal_is_one_class():
    with pytest.raises(hpu_magic.HPUError, match="no HPU 77"):
        hpu_magic.status(77)
