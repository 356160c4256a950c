"""Test reports as values: attributes, ``to_dict()`` and ``to_frame()``."""

import json

import pytest

import hpu_magic
from hpu_magic.errors import HPUError
from hpu_magic.runtime.present.report import Report, plain_value


@pytest.mark.parametrize("line", ["%hpu", "%hpu_mode", "%hpu_flags", "%hpu_memory", "%hpu_ledger"])
def test_every_report_converts_to_json(run, torch, line):
    report = run(f"report = {line}\nreport").result
    values = report.to_dict()
    assert json.loads(json.dumps(values)) == values


def test_fields_of_a_report_are_the_keys_of_its_dict(run, torch, shell):
    shell.user_ns["x"] = torch.ones(4, device="hpu")
    report = run("%hpu_time -n 2 -r 1 -o timed x + 1").result
    assert report.to_dict()["runs"] == report.runs == 2
    assert report.to_dict()["steady"] == report.steady


TABLES = {
    "%hpu_flags -o report": "FlagsReport",
    "x.item()\n%hpu_memory -o report": "MemoryReport",
    "report = hpu_magic.ledger()\nwith report as report:\n    x.item()": "LedgerReport",
    "%hpu_graphs -o report": "GraphList",
    "%hpu_explain_autocast model --inputs x -o report": "AutocastExplanation",
    "%%hpu_profile --no-trace -o report\nmodel(x)": "ProfileReport",
    "report = hpu_magic.workers()": "WorkersReport",
}


@pytest.mark.parametrize("source", TABLES)
def test_table_converts_to_a_data_frame(run, shell, torch, source):
    pandas = pytest.importorskip("pandas")
    shell.user_ns.update(
        hpu_magic=hpu_magic,
        model=torch.nn.Linear(1, 1).to("hpu"),
        x=torch.ones(1, 1, device="hpu"),
    )
    assert run(source).error is None
    report = shell.user_ns["report"]
    assert type(report).__name__ == TABLES[source]
    frame = report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(report.columns())
    assert frame.values.tolist() == [list(line) for line in report.lines()]


def test_data_frame_needs_pandas(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(HPUError, match="pip install pandas"):
        hpu_magic.flags("PT_HPU_LAZY_MODE").to_frame()


def test_values_without_a_plain_form_become_their_class_name():
    assert plain_value({("a", 1): {2}, "b": object()}) == {"a, 1": [2], "b": "object"}


def test_rejected_request_raises_hpu_error():
    with pytest.raises(hpu_magic.HPUError, match="no HPU 77"):
        hpu_magic.status(77)


def test_report_of_stopped_workers_runs_no_code():
    with pytest.raises(HPUError, match="start them again"):
        hpu_magic.workers("off").run("1 + 1")


def test_html_escapes_names_of_the_user():
    class Named(Report):
        def title(self):
            return "<title>"

        def rows(self):
            return [("<b>", "a & b")]

        def warnings(self):
            return ["<careful>"]

    html = Named()._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<careful>" not in html
    assert "Warning: <careful>" in repr(Named())


def test_long_label_does_not_move_the_values_of_other_rows():
    class Layers(Report):
        def title(self):
            return "layers"

        def rows(self):
            return [("layer", "1 ms"), ("x" * 100, "2 ms"), ("norm of", "3 ms")]

    lines = str(Layers()).splitlines()
    assert lines == ["layers", "  layer    1 ms", f"  {'x' * 100}  2 ms", "  norm of  3 ms"]
