"""Test FP8 inference with Lightning's plug-in: measured in one process, quantized in another."""

import json
from pathlib import Path

import pytest
from optional import needs_compressor

MODEL = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import torch
import lightning.pytorch as pl
from hpu_magic.lightning import HPUPrecisionPlugin
from hpu_magic.errors import HPUError

os.chdir(os.environ["FOLDER"])


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)
        )

    def forward(self, x):
        return self.layers(x)

    def predict_step(self, batch, index):
        return self.layers(batch)


data = torch.randn(32, 8, generator=torch.Generator().manual_seed(1)) * 2
loader = torch.utils.data.DataLoader(data, batch_size=8)
plugin = HPUPrecisionPlugin(device="hpu", precision="fp8")
trainer = pl.Trainer(
    accelerator="hpu", devices=1, plugins=[plugin], logger=False, enable_checkpointing=False,
    enable_model_summary=False, enable_progress_bar=False,
)
with torch.no_grad():
    plain = Model()(data)
model = Model()


def predicted():
    outputs = trainer.predict(model, loader)
    found = torch.cat([output.float().cpu() for output in outputs])
    return ((found - plain).norm() / plain.norm()).item(), str(outputs[0].dtype)


def refusal(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except HPUError as refused:
        return str(refused)
"""

# The steps run in forks, because the imports take seconds; each fork acquires a card.
STEPS = (
    MODEL
    + """

def measure():
    results = {"early": refusal(plugin.convert_modules, Model(), inference=True, quant=True)}
    assert plugin.convert_modules(model, inference=True, quant=False) is model
    results["bf16"] = predicted()
    results["inputs"] = plugin.measured.ranges["layers.0"].inputs
    results["layers"] = list(plugin.measured.ranges)
    other = Model()
    del os.environ["QUANT_CONFIG"]
    results["both"] = refusal(plugin.convert_modules, other, inference=True, quant=True)
    results["other"] = [str(other.layers[0].weight.dtype), str(other.layers[0].weight.device)]
    wrong = {"quant": False, "blocklist": {"names": ["nobody"]}}
    another = HPUPrecisionPlugin(device="hpu", precision="fp8")
    results["lists"] = refusal(another.convert_modules, other, inference=True, **wrong)
    results["second"] = refusal(plugin.convert_modules, other, inference=True, quant=False)
    results["unchanged"] = [str(other.layers[0].weight.dtype), str(other.layers[0].weight.device)]
    another.convert_modules(
        other, inference=True, quant=False, hp_dtype="FP32", dump_stats_path="wide/model"
    )
    results["FP32"] = [str(other.layers[0].weight.dtype), str(other.layers[0].weight.device)]
    return results


def quantize():
    assert plugin.convert_modules(model, inference=True, quant=True) is model
    return {"weights": str(model.layers[0].weight.dtype), "fp8": predicted()}


for step in (measure, quantize):
    child = os.fork()
    if child == 0:
        os.environ["QUANT_CONFIG"] = f"{step.__name__}.json"
        with open(f"{step.__name__}d.json", "w") as file:
            json.dump(step(), file)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
)


@pytest.fixture(scope="module")
def results(tmp_path_factory, forked_script):
    """The results of both processes."""
    pytest.importorskip("lightning.pytorch")
    folder = tmp_path_factory.mktemp("fp8")
    for step in ("measure", "quantize"):
        settings = {"mode": step.upper(), "dump_stats_path": "stats/model"}
        (folder / f"{step}.json").write_text(json.dumps(settings))
    forked_script(STEPS, simulated=True, FOLDER=str(folder))
    found = [json.loads((folder / f"{step}d.json").read_text()) for step in ("measure", "quantize")]
    return {**found[0], **found[1], "folder": folder}


@needs_compressor
def test_trainer_run_measures(results):
    import torch

    data = torch.randn(32, 8, generator=torch.Generator().manual_seed(1)) * 2
    assert results["layers"] == ["layers.0", "layers.2"]
    assert results["inputs"] == [data.abs().max().bfloat16().item()]
    assert Path(results["folder"], "stats", "model_hooks_maxabs.npz").is_file()
    error, dtype = results["bf16"]
    assert dtype == "torch.bfloat16"
    assert error < 0.01


@needs_compressor
def test_next_process_computes_in_fp8(results):
    error, dtype = results["fp8"]
    assert (results["weights"], dtype) == ("torch.float8_e4m3fn", "torch.bfloat16")
    assert results["bf16"][0] < error < 0.1


@needs_compressor
def test_process_runs_one_step_in_order(results):
    assert "the mode is MEASURE, but this is the QUANTIZE step" in results["early"]
    assert (
        "A model was already measured in this process, and a process can run only one"
        in results["both"]
    )
    assert results["other"] == ["torch.float32", "cpu"], "a refused conversion changed the model"


@needs_compressor
def test_refused_conversion_changes_nothing(results):
    assert "The blocklist contains the name 'nobody', but no module matches it" in results["lists"]
    assert results["second"] == (
        "This plug-in is already measuring a Model: create another plug-in for a different model."
    )
    assert results["unchanged"] == ["torch.float32", "cpu"]


@needs_compressor
def test_model_can_stay_in_float32(results):
    assert results["FP32"] == ["torch.float32", "hpu:0"]


def test_inference_settings_are_refused_for_training(shell):
    import torch

    from hpu_magic.lightning import HPUPrecisionPlugin

    with pytest.raises(ValueError, match="scale_method is a setting for inference"):
        HPUPrecisionPlugin("fp8").convert_modules(torch.nn.Linear(1, 1), scale_method="maxabs_hw")
