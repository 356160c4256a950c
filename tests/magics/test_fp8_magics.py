"""Test measuring in one process, quantizing in another, and the errors of both commands."""

import json
import math
import re

import pytest
import torch
from optional import needs_compressor

FIGURE = re.compile(r"(?<![\w.])\d+\.\d+(e-\d+)?(?: %| dB)?")
"""Values that depend on the processor."""

SHELL = """
import contextlib, io, json, os, sys

os.chdir(os.environ["FOLDER"])
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
shell = InteractiveShell.instance(config=settings)
shell.run_line_magic("colors", "nocolor")
cells = {}


def run(name, source):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        result = shell.run_cell(source, store_history=True)
    cells[name] = {"shown": shown.getvalue(), "ok": result.success}
    return result.result


run("load", "%load_ext hpu_magic")
run("model", '''
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.blocks = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, 10)
        self.unused = nn.Linear(3, 3)

    def forward(self, images, scale=1.0):
        return self.head(self.blocks(torch.relu(self.conv(images)).flatten(1))) * scale

torch.manual_seed(0)
model = Net().eval()
random = torch.Generator().manual_seed(1)
batches = [(torch.randn(4, 1, 6, 6, generator=random) * n, torch.zeros(4)) for n in (1, 3, 9)]
x = batches[1][0]
''')
"""

MEASURE = (
    SHELL
    + """
run("on the cpu", "%hpu_fp8_measure model --inputs x")
run("move", "%hpu_to model --dtype bf16")
run("nothing", "%hpu_fp8_measure model")
run("both", "%hpu_fp8_measure model --inputs x --data batches")
run("no batches", "%hpu_fp8_measure model --data [] ")
run("no model", "%hpu_fp8_measure x --inputs x")
run("no data", "%hpu_fp8_measure model --data model")
run("no sample", "%hpu_fp8_measure model --inputs model")
run("training", "model.train()\\n%hpu_fp8_measure model --inputs x")
run("new", "new = nn.Linear(2, 2)\\n%hpu_fp8_measure new --inputs x")
run("new here", "new = new.to('hpu')\\n%hpu_fp8_measure new --inputs x")
run("unknown", "model.eval()\\n%hpu_fp8_measure model --inputs x --block haed,Linear")
run("everything", "%hpu_fp8_measure model --inputs x --block Linear,Conv2d")
run("names", '''
many = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))).eval().to("hpu", torch.bfloat16)
pairs = torch.ones(1, 2)
%hpu_fp8_measure many --inputs pairs --block 1,0 --stats names/net -o names
''')
cells["names"]["left"] = [name for name, _ in shell.user_ns["names"].layers]
run("parts", '''
many = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))).eval().to("hpu", torch.bfloat16)
%hpu_fp8_measure many --inputs pairs --block 1$ --stats names/net -o names
''')
cells["parts"]["left"] = [name for name, _ in shell.user_ns["names"].layers]
run("wrong", "wrong = x[0, :, :2]\\n%hpu_fp8_measure model --inputs wrong")
before = run("before", "model(x.to('hpu', torch.bfloat16)).float().cpu().tolist()")
report = run("measure", "%hpu_fp8_measure model --data batches --batches 2 -o report")
after = run("after", "model(x.to('hpu', torch.bfloat16)).float().cpu().tolist()")
cells["same"] = before == after
cells["report"] = {
    "text": repr(report),
    "html": report._repr_html_(),
    "runs": report.runs,
    "kept": shell.user_ns["report"] is report,
    "ranges": {name: [one.inputs, one.weight] for name, one in report.ranges.items()},
}
run("again", "%hpu_fp8_measure model --inputs x")
run("other step", "%hpu_fp8_quantize model --inputs x")
run("restart", "%hpu_fp8_quantize model --inputs x --restart")
print(json.dumps(cells))
"""
)

QUANTIZE = (
    SHELL
    + """
from pathlib import Path

run("move", "%hpu_to model --dtype bf16")
run("float32", "other = Net().eval().to('hpu')\\n%hpu_fp8_quantize other --inputs x")
run("no measurements", "%hpu_fp8_quantize model --inputs x --stats elsewhere/net")
run("observer", "%hpu_fp8_quantize model --inputs x --observer save")
run("unreached", "%hpu_fp8_quantize model --inputs x")
run("method", "%hpu_fp8_quantize model --inputs x --scale-method maxabs_hv")
run("data", "%hpu_fp8_quantize model --data batches")
run("weights", '''
other = Net().eval().to("hpu", torch.bfloat16)
%hpu_fp8_quantize other --inputs x --block unused
''')
run("model of another kind", '''
other = nn.Sequential(nn.Linear(36, 8)).eval().to("hpu", torch.bfloat16)
%hpu_fp8_quantize other --inputs x
''')
origin = Path("hpu_fp8/measure_origin.json")
kept = origin.read_text()
origin.write_text(kept.replace("GAUDI2", "GAUDI3"))
run("generation", "%hpu_fp8_quantize model --inputs x --block unused")
origin.write_text(kept.replace('"head": "Linear"', '"head": "Conv2d"'))
run("kind", "%hpu_fp8_quantize model --inputs x --block unused")
Path("broken_hooks_maxabs.json").write_text("{}")
Path("broken_hooks_maxabs.npz").write_text("")
run("broken", "%hpu_fp8_quantize model --inputs x --stats broken")
origin.unlink()  # like measurements of another program


def outputs(model, names):
    import torch
    found = {}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, output, name=name: found.__setitem__(name, output.clone())
        )
        for name in names
    ]
    with torch.no_grad():
        result = model(shell.user_ns["x"].to("hpu", torch.bfloat16))
    for handle in handles:
        handle.remove()
    return {name: value.float().cpu().tolist() for name, value in {**found, "": result}.items()}


model = shell.user_ns["model"]
names = ["conv", "blocks.0", "blocks.2", "head"]
plain = outputs(model, names)
alone = {}
report = run("quantize", "%hpu_fp8_quantize model --inputs x --block unused -o report")
cells["outputs"] = [plain, outputs(model, names)]
cells["report"] = {
    "text": repr(report),
    "html": report._repr_html_(),
    "picture": report.picture,
    "same": report.model is model,
    "whole": report.output.relative,
    "errors": {
        e.name: [e.kind, e.total.relative, e.total.sqnr, e.total.largest, e.own.relative]
        for e in report.errors
    },
    "types": {name: str(model.get_submodule(name).weight.dtype) for name in [*names, "unused"]},
}
run("again", "%hpu_fp8_quantize model --inputs x")
run("other step", "%hpu_fp8_measure other --inputs x")
print(json.dumps(cells))
"""
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory, forked_script):
    """Outputs of the cells of both processes, and their folder."""
    folder = tmp_path_factory.mktemp("fp8")
    environment = {"FOLDER": str(folder)}
    measured, quantized = (
        json.loads(forked_script(code, **environment).splitlines()[-1])
        for code in (MEASURE, QUANTIZE)
    )
    return measured, quantized, folder


def refused(cells, name):
    """Return the usage error of a cell."""
    shown = cells[name]["shown"]
    assert not cells[name]["ok"]
    assert shown.startswith("UsageError: "), shown
    return shown.removeprefix("UsageError: ").partition("\n")[0]


@needs_compressor
def test_measure_reports_usage_errors(steps, golden):
    names = "on the cpu", "nothing", "both", "no batches", "no model", "no data", "no sample"
    names += "training", "new", "new here", "unknown", "everything"
    names += "again", "other step", "restart"
    errors = [f"{name}: {refused(steps[0], name)}" for name in names]
    golden("fp8_measure_errors", "\n".join(errors))


@needs_compressor
def test_blocklist_matches_complete_names_and_patterns(steps):
    assert steps[0]["names"]["left"] == [str(number) for number in range(2, 12)]
    assert steps[0]["parts"]["left"] == ["0", *(str(number) for number in range(2, 11))]


@needs_compressor
def test_invalid_inputs_are_found_before_the_model_changes(steps):
    assert "RuntimeError" in steps[0]["wrong"]["shown"]
    assert steps[0]["measure"]["ok"]


@needs_compressor
def test_measure_report_contains_ranges_and_the_next_step(steps, golden):
    cells, _, folder = steps
    report = cells["report"]
    assert cells["same"], "the measured model returns different results"
    assert report["kept"]
    assert report["runs"] == 2
    random = torch.Generator().manual_seed(1)
    largest = max(
        (torch.randn(4, 1, 6, 6, generator=random) * size).bfloat16().abs().max().item()
        for size in (1, 3)
    )
    assert report["ranges"]["conv"][0] == [largest]
    assert set(report["ranges"]) == {"conv", "blocks.0", "blocks.2", "head"}
    golden("fp8_measure", FIGURE.sub("FIGURE", report["text"]))
    assert f"{largest:.4g}" in report["text"]
    assert f"{largest:.4g}" in report["html"]
    assert {file.name for file in (folder / "hpu_fp8").iterdir()} >= {
        "measure_hooks_maxabs.json",
        "measure_hooks_maxabs.npz",
    }


@needs_compressor
def test_quantize_reports_usage_errors(steps, golden):
    names = "float32", "no measurements", "observer", "unreached", "method", "data", "weights"
    names += "model of another kind", "generation", "kind", "broken", "again", "other step"
    errors = [f"{name}: {refused(steps[1], name)}" for name in names]
    golden("fp8_quantize_errors", FIGURE.sub("FIGURE", "\n".join(errors)))


def relative(found, expected):
    """Return the norm of the difference relative to the norm of the expected values."""
    found, expected = (torch.tensor(values).double() for values in (found, expected))
    return float((found - expected).norm() / expected.norm())


@needs_compressor
def test_quantize_report_contains_the_error_of_each_layer(steps):
    report = steps[1]["report"]
    plain, quantized = steps[1]["outputs"]
    assert report["same"]
    assert list(report["errors"]) == ["conv", "blocks.0", "blocks.2", "head"]
    assert {name for name, dtype in report["types"].items() if dtype == "torch.bfloat16"} == {
        "unused"
    }
    for name, (kind, share, sqnr, largest, own) in report["errors"].items():
        assert kind == ("Conv2d" if name == "conv" else "Linear")
        assert share == pytest.approx(relative(quantized[name], plain[name]), rel=1e-4)
        assert sqnr == pytest.approx(-20 * math.log10(share))
        difference = torch.tensor(quantized[name]) - torch.tensor(plain[name])
        assert largest == pytest.approx(difference.abs().max().item(), rel=1e-6)
        assert 0 < own < 0.1
    first = report["errors"]["conv"]
    assert first[1] == first[4]  # no earlier layer is quantized
    assert report["errors"]["head"][1] != report["errors"]["head"][4]
    assert report["whole"] == pytest.approx(relative(quantized[""], plain[""]), rel=1e-4)


@needs_compressor
def test_quantize_report_shows_a_table_and_a_picture(steps, golden):
    report = steps[1]["report"]
    golden("fp8_quantize", FIGURE.sub("FIGURE", report["text"]))
    for _, share, sqnr, largest, own in report["errors"].values():
        figures = f"{100 * share:.3g} %", f"{sqnr:.1f} dB", f"{largest:.3g}", f"{100 * own:.3g} %"
        assert all(figure in report["text"] for figure in figures)
    picture = report["picture"]
    assert report["html"].count(picture) == 1
    assert report["html"].index("</table>") < report["html"].index(picture)
    for name, (_, share, _, _, own) in report["errors"].items():
        assert f"<title>{name}: {100 * share:.4g} %, {100 * own:.4g} %</title>" in picture
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="12"', picture)]
    shares = [figures[1] for figures in report["errors"].values()]
    for width, share in zip(widths, shares, strict=True):
        assert width / widths[0] == pytest.approx(share / shares[0], rel=0.01)


def test_first_generation_cards_are_refused(forked_script):
    said = forked_script(
        """
        import hpu_magic
        from torch import nn

        for function in (hpu_magic.fp8_measure, hpu_magic.fp8_quantize):
            try:
                function(nn.Linear(2, 2), nn.Parameter())
            except ValueError as error:
                print(error)
        """,
        simulated=True,
        HPU_MAGIC_CARD="gaudi",
    )
    sentence = "First-generation Gaudi does not support FP8: use bf16."
    assert said.splitlines() == [sentence, sentence]


def test_fp8_options_and_values_are_completed(run, shell, torch):
    shell.user_ns.update(model=torch.nn.Linear(1, 1), x=torch.ones(1))

    def completed(line):
        return shell.complete(line, line, len(line))[1]

    assert completed("%hpu_fp8_measure mod") == ["model"]
    assert completed("%hpu_fp8_measure model --inputs x --scale-method maxabs_p") == [
        *("maxabs_pcs_pow2", "maxabs_pow2", "maxabs_pow2_opt_weight")
    ]
    assert completed("%hpu_fp8_measure model --inputs x --card g") == ["gaudi2", "gaudi3"]
    assert "--block" in completed("%hpu_fp8_measure model --inputs x --b")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "type %hpu_fp8_measure model"),
        ("missing", "Unknown variable 'missing'"),
        ("model --inputs x --allow ,", "The list is empty: specify layer names, or class names"),
        ("model --inputs x -o class", "'class' cannot be a variable"),
        ("model --inputs x --dtpye E4M3", "type %hpu_fp8_measure model --inputs x --dtype E4M3"),
        ("model --inputs x --batches many", "needs a whole number after --batches, not 'many'"),
    ],
)
def test_invalid_lines_report_usage_errors(rejected, shell, torch, line, sentence):
    shell.user_ns.update(model=torch.nn.Linear(1, 1), x=torch.ones(1))
    assert sentence in rejected(f"%hpu_fp8_measure {line}")
