"""Test FP8 inference with functions: statistics files, lazy mode, data loaders, other cards."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from optional import needs_compressor

import hpu_magic
from hpu_magic.errors import HPUError

pytestmark = needs_compressor

MODEL = """
import json, os, typing
import torch
from torch import nn
import hpu_magic

os.chdir(os.environ["FOLDER"])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.values, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, mask, *, scale=None):
        scores = torch.softmax(self.keys(x) @ x.transpose(1, 2) + mask, -1)
        outcome = self.out(self.out(scores @ self.values(x)))
        return {"outcome": outcome if scale is None else outcome * scale, "length": x.size(1)}


def model():
    torch.manual_seed(0)
    return nn.ModuleDict({"first": Attention()})["first"].eval().to("hpu", torch.bfloat16)


random = torch.Generator().manual_seed(2)
x, mask = torch.randn(2, 5, 8, generator=random) * 3, torch.zeros(2, 5, 5)
moved = [value.to("hpu", torch.bfloat16) for value in (x, mask)]


def attempt(function, *arguments, **options):
    try:
        return repr(function(*arguments, **options))
    except hpu_magic.errors.HPUError as error:
        return str(error)
"""

MEASURE = (
    MODEL
    + """
class Compiled(nn.Module):
    def __init__(self, compiled):
        super().__init__()
        self._orig_mod = compiled  # like torch.compile, which lazy mode does not support


class Two(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, two):
        return self.layer(two.first) + self.layer(two.second)


def calibrate(model):
    for size in (1, 2):
        model(x.to("hpu", torch.bfloat16) * size, mask.to("hpu", torch.bfloat16))


answers = {"wrong step": attempt(hpu_magic.fp8_quantize, model(), (x, mask))}
report = hpu_magic.fp8_measure(model(), calibrate)
answers["file"] = report.file
answers["inputs"] = report.ranges["keys"].inputs
answers["outputs"] = len(report.ranges["keys"].outputs)
answers["columns"] = report.columns()
answers["notes"] = report.notes()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, mask, x), batch_size=1)
other = hpu_magic.fp8_measure(model(), data=loader, dump_stats_path="loader/net")
answers["batches"] = [other.runs, other.ranges["keys"].inputs]
named = hpu_magic.fp8_measure(model(), (x, {"mask": mask, "scale": 2.0}), dump_stats_path="named/n")
answers["named"] = named.ranges["keys"].inputs
layers = nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)).eval().to("hpu", torch.bfloat16)
answers["softmax"] = attempt(hpu_magic.fp8_measure, layers, x)
blocked = {"types": ["Softmax"], "names": []}
report = hpu_magic.fp8_measure(layers, x, blocklist=blocked, dump_stats_path="softmax/net")
answers["blocked"] = list(report.ranges)
answers["dynamic"] = attempt(hpu_magic.fp8_measure, model(), (x, mask), dynamic_quantization=True)
twice = nn.Linear(8, 8)
shared = nn.Sequential(twice, nn.Sequential(nn.ReLU(), twice)).eval().to("hpu", torch.bfloat16)
answers["shared"] = attempt(hpu_magic.fp8_measure, shared, x)
open("a file", "w").close()
answers["no folder"] = attempt(
    hpu_magic.fp8_measure, model(), (x, mask), dump_stats_path="a file/n"
)
answers["compiled"] = attempt(hpu_magic.fp8_measure, Compiled(model()), (x, mask))
pair = Pair().eval().to("hpu", torch.bfloat16)
report = hpu_magic.fp8_measure(pair, [Two(x, -2 * x)], dump_stats_path="pair/net")
answers["pair"] = report.ranges["layer"].inputs
answers["float32"] = attempt(hpu_magic.fp8_measure, model(), (x, mask), hp_dtype="FP32")
report = hpu_magic.fp8_measure(model(), (x * torch.inf, mask), dump_stats_path="infinite/net")
answers["infinite"] = report.warnings()
print(json.dumps(answers))
"""
)

QUANTIZE = (
    MODEL
    + """
import shutil
import torch.nn.functional as F

answers = {}
for name, options in json.loads(os.environ["WAYS"]).items():
    torch.manual_seed(0)
    quantized = model()
    try:
        report = hpu_magic.fp8_quantize(quantized, (x, {"mask": mask}), **options)
    except hpu_magic.errors.HPUError as error:
        answers[name] = str(error)
        continue
    answers[name] = {
        "title": report.title(),
        "notes": report.notes(),
        "layers": report.layers,
        "errors": [error.total.relative for error in report.errors],
        "calls": [error.calls for error in report.errors],
        "output": report.output.relative,
    }
plain = hpu_magic.fp8_quantize(model(), **options)
answers["no sample"] = [plain.columns(), plain.lines(), plain.picture, plain.notes()[-1]]
report = hpu_magic.fp8_quantize(model(), lambda model: str(model(*moved)), **options)
answers["no output"] = [report.title(), [0 < error.total.relative < 1 for error in report.errors]]
answers["settings"] = attempt(hpu_magic.fp8_quantize, model(), scale_params="0.5")
shutil.copytree("stats", "broken", dirs_exist_ok=True)
broken = {**options, "dump_stats_path": "broken/net"}
answers["origins"] = []
for text in json.loads(os.environ.get("ORIGINS", "[]")):
    with open("broken/net_origin.json", "w") as file:
        file.write(text)
    answers["origins"].append(attempt(hpu_magic.fp8_quantize, model(), **broken).splitlines()[0])
with open("broken/net_hooks_maxabs.npz", "rb+") as file:
    file.truncate(100)
answers["half"] = attempt(hpu_magic.fp8_quantize, model(), **broken)
print(json.dumps(answers))
"""
)


class Processes:
    """Runs each step in its own process, in one folder."""

    def __init__(self, folder: Path, forked_script: Any) -> None:
        self.folder, self._script = folder, forked_script
        empty: dict[str, list[str]] = {"types": [], "names": []}
        for mode, more in (("MEASURE", {"measure_exclude": "NONE"}), ("QUANTIZE", {})):
            settings = {"method": "HOOKS", "mode": mode, "observer": "maxabs", **more}
            settings |= {"allowlist": empty, "blocklist": empty}
            settings["dump_stats_path"] = "stats/net"
            (folder / f"{mode}.json").write_text(json.dumps(settings, indent=4))

    def __call__(self, code: str, mode: str, **environment: str) -> dict[str, Any]:
        settings = {"FOLDER": str(self.folder)}
        settings |= {"QUANT_CONFIG": str(self.folder / f"{mode}.json"), **environment}
        return json.loads(self._script(code, simulated=True, **settings).splitlines()[-1])


@pytest.fixture(scope="module")
def processes(tmp_path_factory, forked_script) -> Processes:
    return Processes(tmp_path_factory.mktemp("fp8"), forked_script)


LAZY = {"PT_HPU_LAZY_MODE": "1", "PT_HPU_WEIGHT_SHARING": "0"}
ALONE = {"WORLD_SIZE": "1", "LOCAL_RANK": "0"}  # set by a launcher for a single process


@pytest.fixture(scope="module")
def measured(processes) -> dict[str, Any]:
    """Answers of the measurement process in lazy mode."""
    return processes(MEASURE, "MEASURE", **LAZY, **ALONE)


def largest(size: float) -> float:
    import torch

    values = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2)) * 3
    return (values.bfloat16() * size).abs().max().item()


def test_quant_config_contains_the_settings(measured):
    assert measured["file"] == "stats/net_hooks_maxabs.json"
    assert measured["outputs"] == 1
    assert measured["columns"][-1] == "largest output"
    sentence = "MEASURE.json, line 3: the mode is MEASURE, but this is the QUANTIZE step"
    assert sentence in measured["wrong step"]


def test_calibration_accepts_a_function_a_loader_keywords_and_named_tuples(measured):
    assert measured["inputs"] == [largest(2)]
    assert measured["batches"] == [2, [largest(1)]], "labels after the required inputs are dropped"
    assert measured["named"] == [largest(1)]
    assert measured["pair"] == [largest(2)]


def test_softmax_that_neural_compressor_mistakes_is_rejected_unless_blocked(measured):
    assert "'1' is a torch.nn.Softmax" in measured["softmax"]
    assert "put Softmax in the blocklist" in measured["softmax"]
    assert measured["blocked"] == ["0"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            "shared",
            "'0' is the same layer as '1.1', but Neural Compressor replaces only one of them: put "
            "'0' in the blocklist.",
        ),
        (
            "no folder",
            "Measurements cannot be written to 'a file/n' ([Errno 17] File exists: 'a file'): set "
            "another path (dump_stats_path).",
        ),
        (
            "compiled",
            "The Attention is compiled, which changes the names of its layers: pass the original "
            "model, and compile it after quantization.",
        ),
        (
            "float32",
            "The weights of 'keys' are bfloat16, but fp8 inference starts from float32: type "
            "%hpu_to MODEL --dtype float32 first.",
        ),
        (
            "dynamic",
            "Dynamic quantization does not need measurements: quantize the model directly.",
        ),
    ],
)
def test_unsuitable_model_or_setting_is_rejected_before_measuring(measured, answer, sentence):
    assert measured[answer] == sentence


def test_infinite_activations_cause_a_warning(measured):
    assert measured["infinite"] == [
        "Values in keys, values, out are not finite, so they have no scale: measure again with "
        "other data, or block these layers."
    ]


def test_script_gets_a_note_about_the_next_step(measured):
    assert measured["notes"][-1] == (
        "The second step must run in a separate process: call "
        "hpu_magic.fp8_quantize(model, inputs) there."
    )


WAYS = {
    "as measured": {},
    "pow2": {"scale_method": "maxabs_pow2", "scale_format": "const"},
    "E5M2": {"fp8_config": "E5M2"},
    # Scales that were calculated for one format do not fit the other.
    "wide": {"scale_method": "maxabs_arbitrary", "fp8_config": "E5M2"},
    "narrow": {"scale_method": "maxabs_arbitrary"},
    "dynamic": {"dynamic_quantization": True, "scale_method": "maxabs_pow2"},
    "unit": {"scale_method": "unit_scale", "dump_stats_path": "nowhere/net"},
    "one": {"allowlist": {"names": ["^out$"]}},
}


ORIGINS = ["", "[]", "3", '{"layers": []}', '{"generation": [], "layers": {}}', "[" * 100_000]


@pytest.fixture(scope="module")
def quantized(processes, measured) -> dict[str, Any]:
    """Answers of the quantization process in lazy mode."""
    environment = {"WAYS": json.dumps(WAYS), "ORIGINS": json.dumps(ORIGINS)}
    return processes(QUANTIZE, "QUANTIZE", **environment, **LAZY, **ALONE)


def test_quantization_error_is_small_for_every_method(quantized):
    layers = [["keys", "Linear"], ["values", "Linear"], ["out", "Linear"]]
    for name in WAYS:
        answer = quantized[name]
        assert answer["layers"] == (layers[-1:] if name == "one" else layers)
        assert answer["calls"] == ([2] if name == "one" else [1, 1, 2])
        largest_error = 0.3 if name in ("E5M2", "wide") else 0.15  # E5M2 has one mantissa bit less
        assert all(0 < error < largest_error for error in (*answer["errors"], answer["output"])), (
            name
        )
    assert quantized["E5M2"]["errors"][0] > 1.5 * quantized["as measured"]["errors"][0]
    assert "fp8 (E5M2)" in quantized["E5M2"]["title"]
    assert quantized["dynamic"]["notes"][0] == "Scales: dynamic maxabs_pow2."


def test_without_a_sample_no_errors_are_reported(quantized):
    columns, lines, picture, note = quantized["no sample"]
    assert (columns, lines, picture) == (["layer", "class"], [["out", "Linear"]], "")
    assert note == "Pass a sample of the model's inputs to see the error of each layer."


QUANTIZED = r"Attention quantized to fp8 \(E4M3\) on HPU \d \(simulated GAUDI2\): 1 layer"


def test_calibration_function_without_tensor_output_reports_layer_errors_only(quantized):
    title, shown = quantized["no output"]
    assert re.fullmatch(QUANTIZED, title)
    assert shown == [True]


def test_exception_of_neural_compressor_becomes_a_sentence(quantized):
    assert quantized["settings"] == (
        "Neural Compressor failed with TypeError ('str' object does not support item assignment): "
        "change the settings and create the model again."
    )


def test_measurements_with_an_unreadable_origin_are_used(quantized):
    titles = quantized["origins"]
    assert len(titles) == len(ORIGINS)
    assert all(re.fullmatch(QUANTIZED, title) for title in titles)


def test_truncated_measurements_are_rejected(quantized):
    assert quantized["half"] == (
        "broken/net_hooks_maxabs.npz contains no measurements: measure the model again."
    )


def test_other_generation_needs_new_measurements_or_its_scales_by_option(processes, measured):
    ways = {"as they are": {}, "its scales": {"device_for_scales": "GAUDI2"}}
    answers = processes(QUANTIZE, "QUANTIZE", WAYS=json.dumps(ways), HPU_MAGIC_CARD="gaudi3")
    assert answers["as they are"] == (
        "The measurements stats/net_hooks_maxabs.json are from a GAUDI2, but this card is a "
        "GAUDI3: measure the model on this card."
    )
    assert "GAUDI3" in answers["its scales"]["title"]


def test_process_of_a_distributed_job_is_rejected(shell, monkeypatch):
    import torch

    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(HPUError, match="runs on a single card, but this is one of 8 processes"):
        hpu_magic.fp8_measure(torch.nn.Linear(1, 1), torch.ones(1))


def test_missing_package_is_named_with_its_install_command(shell, monkeypatch):
    import torch

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HPUError, match=r'pip install "hpu_magic\[fp8\]"'):
        hpu_magic.fp8_quantize(torch.nn.Linear(1, 1))
