"""Measuring in one process, quantizing in another, and errors of both."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

needs_compressor = pytest.mark.skipif(
    importlib.util.find_spec("neural_compressor") is None,
    reason="neural-compressor-pt is not installed; it needs Python 3.11",
)

SHELL = """
import contextlib, io, json, os, sys

os.chdir(os.environ["FOLDER"])
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

settings = Config({"HistoryManager": {"hist_file": ":memory:"}})
shell = InteractiveShell.instance(config=settings)
shell.run_line_magic("colors", "nocolor")
answers = {}


def run(name, source):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        result = shell.run_cell(source, store_history=True)
    answers[name] = {"shown": shown.getvalue(), "ok": result.success}
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
answers["names"]["left"] = [name for name, _ in shell.user_ns["names"].layers]
run("parts", '''
many = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))).eval().to("hpu", torch.bfloat16)
%hpu_fp8_measure many --inputs pairs --block 1$ --stats names/net -o names
''')
answers["parts"]["left"] = [name for name, _ in shell.user_ns["names"].layers]
run("wrong", "wrong = x[0, :, :2]\\n%hpu_fp8_measure model --inputs wrong")
before = run("before", "model(x.to('hpu', torch.bfloat16)).float().cpu().tolist()")
report = run("measure", "%hpu_fp8_measure model --data batches --batches 2 -o report")
after = run("after", "model(x.to('hpu', torch.bfloat16)).float().cpu().tolist()")
answers["same"] = before == after
answers["report"] = {
    "text": repr(report),
    "html": report._repr_html_(),
    "runs": report.runs,
    "kept": shell.user_ns["report"] is report,
    "ranges": {name: [one.inputs, one.weight] for name, one in report.ranges.items()},
}
run("again", "%hpu_fp8_measure model --inputs x")
run("other step", "%hpu_fp8_quantize model --inputs x")
run("restart", "%hpu_fp8_quantize model --inputs x --restart")
print(json.dumps(answers))
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
origin.unlink()  # as where another program measured


def outputs(model, names):
    import torch
    found = {}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda module, given, output, name=name: found.__setitem__(name, output.clone())
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
answers["outputs"] = [plain, outputs(model, names)]
answers["report"] = {
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
print(json.dumps(answers))
"""
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory, forked_script) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """What the cells of the two processes gave, and the folder that they ran in."""
    folder = tmp_path_factory.mktemp("fp8")
    environment = {"FOLDER": str(folder)}
    measured, quantized = (
        json.loads(forked_script(code, **environment).splitlines()[-1])
        for code in (MEASURE, QUANTIZE)
    )
    return measured, quantized, folder


def refused(answers: dict[str, Any], name: str) -> str:
    """The one sentence that a cell was refused with."""
    shown = answers[name]["shown"]
    assert not answers[name]["ok"]
    assert shown.startswith("UsageError: "), shown
    return shown.removeprefix("UsageError: ").partition("\n")[0]


@needs_compressor
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("on the cpu", "The model has parameters on cpu: type %hpu_to MODEL --dtype bf16 first."),
        ("nothing", "Measuring needs either inputs or data: type %hpu_fp8_measure model"),
        ("both", "Measuring needs either inputs or data: type %hpu_fp8_measure model"),
        ("no batches", "Unknown variable '[]'"),
        ("no model", "A Tensor is not a model: pass a torch.nn.Module."),
        ("no data", "A Net is not data: pass a DataLoader or a list."),
        ("no sample", "A Net cannot be an input: pass tensors, or a function"),
        ("training", "The model is in training mode: call model.eval() first."),
        (
            "new",
            "The model is in training mode and has parameters on cpu: call model.eval() and type "
            "%hpu_to MODEL --dtype bf16 first.",
        ),
        (
            "new here",
            "The model is in training mode and has float32 parameters: call model.eval() and type "
            "%hpu_to MODEL --dtype bf16 first.",
        ),
        (
            "unknown",
            "The blocklist contains the name 'haed', but no module has it: did you mean 'head'?",
        ),
        ("everything", "No layer of this Net is selected: shorten the blocklist; Conv2d, L"),
        ("again", "The model is already measured: create it again."),
        ("other step", "A model was measured in this process, which can do only one step: "),
        ("restart", "No Jupyter server can restart this process: "),
    ],
)
def test_measuring_refuses_in_one_sentence(steps, name, sentence):
    assert sentence in refused(steps[0], name)


@needs_compressor
def test_a_whole_name_blocks_that_layer_alone(steps):
    assert steps[0]["names"]["left"] == [str(number) for number in range(2, 12)]
    assert steps[0]["parts"]["left"] == ["0", *(str(number) for number in range(2, 11))]


@needs_compressor
def test_what_the_model_does_not_take_is_found_before_it_is_changed(steps):
    assert "RuntimeError" in steps[0]["wrong"]["shown"]
    assert steps[0]["measure"]["ok"]


@needs_compressor
def test_measuring_shows_what_each_layer_met_and_what_comes_next(steps):
    answers, _, folder = steps
    report = answers["report"]
    assert answers["same"], "a model that is measured computes as before"
    assert report["kept"]
    assert report["runs"] == 2
    random = torch.Generator().manual_seed(1)
    largest = max(
        (torch.randn(4, 1, 6, 6, generator=random) * size).bfloat16().abs().max().item()
        for size in (1, 3)
    )
    assert report["ranges"]["conv"][0] == [largest]
    assert set(report["ranges"]) == {"conv", "blocks.0", "blocks.2", "head"}
    first, head, *rows = report["text"].splitlines()
    assert re.fullmatch(
        r"Net measured for fp8 on HPU \d \(simulated GAUDI2\): 4 layers, 2 runs", first
    )
    assert re.split(r"\s{2,}", head.strip()) == [
        *("layer", "class", "largest input", "largest weight")
    ]
    assert rows[0].split() == [
        *("conv", "Conv2d", f"{largest:.4g}"),
        f"{report['ranges']['conv'][1]:.4g}",
    ]
    assert "restart the kernel, create the model again and type %hpu_fp8_quantize" in report["text"]
    assert "Warning: The data did not reach unused" in report["text"]
    assert report["html"].count("<tr>") == 5
    assert {file.name for file in (folder / "hpu_fp8").iterdir()} >= {
        "measure_hooks_maxabs.json",
        "measure_hooks_maxabs.npz",
    }


@needs_compressor
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("float32", "The weights of 'conv' are float32, and fp8 inference starts from bfloat16"),
        ("no measurements", "There are no measurements at 'elsewhere/net': type %hpu_fp8_measure"),
        ("observer", "There are no measurements of the observer 'save' at 'hpu_fp8/measure', only"),
        ("unreached", "'unused' has no measurement in hpu_fp8/measure_hooks_maxabs.json: measure"),
        ("method", "Unknown scale_method 'maxabs_hv': did you mean 'maxabs_hw'"),
        ("data", "type %hpu_fp8_measure model --data loader"),
        ("weights", "are from other weights: the largest weight of 'conv' is"),
        ("model of another kind", "are from another model: this Sequential has no 'conv', "),
        (
            "generation",
            "are from a GAUDI3, and this card is a GAUDI2: measure the model on this card.",
        ),
        ("kind", "are from another model: this Net has another class of layer at 'head'."),
        ("broken", "broken_hooks_maxabs.json contains no measurements"),
        ("again", "The model is already quantized: create it again."),
        ("other step", "A model was quantized in this process, which can do only one step: "),
    ],
)
def test_quantizing_refuses_in_one_sentence(steps, name, sentence):
    assert sentence in refused(steps[1], name)


def relative(found: Any, expected: Any) -> float:
    """Norm of the difference over the norm of what is expected, in float64."""
    found, expected = (torch.tensor(one, dtype=torch.float64) for one in (found, expected))
    return float((found - expected).norm() / expected.norm())


@needs_compressor
def test_the_report_has_the_error_of_each_layer(steps):
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
    assert first[1] == first[4], "nothing before it is quantized"
    assert report["errors"]["head"][1] != report["errors"]["head"][4]
    assert report["whole"] == pytest.approx(relative(quantized[""], plain[""]), rel=1e-4)


@needs_compressor
def test_the_report_is_a_table_and_a_picture(steps):
    report = steps[1]["report"]
    title, head, *rows = report["text"].splitlines()
    share = f"{100 * report['whole']:.3g} %"
    assert re.sub(r"HPU \d", "HPU N", title) == (
        "Net quantized to fp8 (E4M3) on HPU N (simulated GAUDI2): 4 layers, relative error of the "
        f"output {share}"
    )
    assert re.split(r"\s{2,}", head.strip()) == [
        *("layer", "class", "relative error", "SQNR", "largest error", "own error")
    ]
    for row, (name, figures) in zip(rows, report["errors"].items(), strict=False):
        kind, share, sqnr, largest, own = figures
        assert re.split(r"\s{2,}", row.strip()) == [
            *(name, kind, f"{100 * share:.3g} %", f"{sqnr:.1f} dB", f"{largest:.3g}"),
            f"{100 * own:.3g} %",
        ]
    assert "Scales: maxabs_hw." in report["text"]
    picture = report["picture"]
    assert report["html"].count(picture) == 1
    assert report["html"].index("</table>") < report["html"].index(picture)
    for name, (_, share, _, _, own) in report["errors"].items():
        assert f"<title>{name}: {100 * share:.4g} %, {100 * own:.4g} %</title>" in picture
    widths = [float(one) for one in re.findall(r'width="([\d.]+)" height="12"', picture)]
    shares = [figures[1] for figures in report["errors"].values()]
    assert len(widths) == 4
    for width, share in zip(widths, shares, strict=True):
        assert width / widths[0] == pytest.approx(share / shares[0], rel=0.01)


def test_first_generation_is_refused(forked_script):
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


def test_options_and_their_values_complete(run, shell, torch):
    shell.user_ns.update(model=torch.nn.Linear(1, 1), x=torch.ones(1))

    def completed(line: str) -> list[str]:
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
        ("model --inputs x --allow ,", "The list is empty: write names of layers, or of classes"),
        ("model --inputs x -o class", "'class' cannot be a variable"),
        ("model --inputs x --dtpye E4M3", "type %hpu_fp8_measure model --inputs x --dtype E4M3"),
        ("model --inputs x --batches many", "needs a whole number after --batches, not 'many'"),
    ],
)
def test_wrong_lines_are_refused_in_a_sentence(run, shell, torch, line, sentence):
    shell.user_ns.update(model=torch.nn.Linear(1, 1), x=torch.ones(1))
    cell = run(f"%hpu_fp8_measure {line}")
    assert sentence in cell.err
