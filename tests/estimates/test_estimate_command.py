"""`hpu-magic estimate` prints the estimate of `hpu_magic.estimate`."""

import inspect
import json
import re

import pytest
import torch
from torch import nn

import hpu_magic
from hpu_magic import command_line

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
MODELS = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def moves():
    return nn.Linear(8, 4).to("cpu")

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x, mask):
        return self.linear(x) * mask

def square(output):
    return output.square().mean()

NUMBER = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, torch):
    (tmp_path / "models_of_a_user.py").write_text(MODELS)
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "other.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    status = command_line.main(["estimate", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_function_in_the_working_directory_returns_the_model(folder, capsys):
    status, out, _ = run(
        capsys,
        *("models_of_a_user:make", "--inputs", "8x8", "--loss", "models_of_a_user:square"),
        *("--cards", "2", "--parallel", "zero1", "--mode", "eager", "--card", "gaudi3"),
    )
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    expected = hpu_magic.estimate(
        model, torch.ones(8, 8), loss=lambda output: output.square().mean(),
        cards=2, parallel="zero1", mode="eager", card="gaudi3",
    )  # fmt: skip
    assert (status, out) == (0, f"{expected}\n")


def test_figures_are_printed_as_json(folder, capsys):
    status, out, _ = run(
        capsys,
        *("models_of_a_user:Named", "--inputs", "x=4x8,mask=4x1:bool", "--no-train", "--json"),
    )
    # Like the command, with inputs by name.
    from models_of_a_user import Named

    expected = hpu_magic.estimate(
        Named(), {"x": torch.ones(4, 8), "mask": torch.ones(4, 1, dtype=torch.bool)}, train=False,
        mode="eager",
    )  # fmt: skip
    assert status == 0
    assert json.loads(out) == {
        "estimate": "forward pass of Named on gaudi2 (eager mode, fp32, batch 4)",
        "model": "Named",
        "seconds": expected.seconds,
        "samples_per_second": expected.samples_per_second,
        "tokens_per_second": expected.tokens_per_second,
        "batch": 4,
        "peak": expected.peak,
        "fits": True,
        "band": list(expected.band),
        "memory_of_a_card": expected.card.memory,
        "memory": expected.memory,
        "time": expected.by_kind,
    }


def test_function_can_allocate_memory(folder, capsys):
    status, out, _ = run(capsys, "models_of_a_user:moves", "--inputs", "8x8", "--json")
    assert (status, json.loads(out)["model"]) == (0, "Linear")


def test_configuration_specifies_the_model(folder, capsys):
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    _, out, _ = run(capsys, "llama", "--inputs", "2x16:int64", "--batch", "4")
    tokens = torch.ones(2, 16, dtype=torch.long)
    assert out == f"{hpu_magic.estimate(model, tokens, batch=4, mode='eager')}\n"
    _, out, _ = run(
        capsys,
        *("llama/config.json", "--prompt", "16", "--new-tokens", "4", "--batch", "2"),
        *("--cache-dtype", "fp8", "--cache", "dynamic", "--json"),
    )
    expected = hpu_magic.estimate_generation(
        model, batch=2, prompt=16, new_tokens=4, cache_dtype="fp8", cache="dynamic"
    )
    found = json.loads(out)
    assert found["estimate"] == expected.title().removeprefix("Estimate: ")
    assert found["token_seconds"] == expected.token_seconds
    assert (found["memory"], found["time"]) == (expected.memory, expected.by_kind)


@pytest.mark.parametrize("option", ["--batch few", "--cards few", "--card gaudi4"])
def test_invalid_values_are_refused_like_in_magics(folder, capsys, option):
    with pytest.raises(SystemExit) as exited:
        run(capsys, "models_of_a_user:make", "--inputs", "8x8", *option.split())
    assert exited.value.code == 2
    name, value = option.split()
    assert re.search(f"argument {name}: invalid .*'{value}'", capsys.readouterr().err)


def test_options_are_those_of_the_functions():
    [command] = command_line.parser()._subparsers._group_actions
    named = {action.dest for action in command.choices["estimate"]._actions} - {"help", "json"}
    functions = hpu_magic.estimate, hpu_magic.estimate_generation
    assert named == {name for each in functions for name in inspect.signature(each).parameters}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("models_of_a_user:mak --inputs 8", "models_of_a_user has no 'mak': did you mean 'make'?"),
        ("models_of_a_user:NUMBER --inputs 8", "NUMBER is a int, not a model or a function."),
        ("models_of_a_user:square --inputs 8", "cannot be called without arguments: square()"),
        ("nowhere:make --inputs 8", "nowhere cannot be imported: No module named 'nowhere'."),
        ("something --inputs 8", "'something' is not a model: use module:callable, such as"),
        ("missing.json --inputs 8", "The file missing.json does not exist"),
        ("other.json --inputs 8", "other.json is not a configuration that transformers supports: "),
        ("models_of_a_user:make", "An estimate requires the model's inputs, such as"),
        ("models_of_a_user:make --inputs 8y", "--inputs '8y' is not a shape: use sizes and a type"),
        ("models_of_a_user:make --inputs 8:it64", "Unknown type 'it64': did you mean 'int64'"),
        ("models_of_a_user:make --inputs a=8,8", "name all or none."),
        ("models_of_a_user:make --inputs 8x8 --cache static", "--cache requires --prompt N"),
        ("llama --prompt 3", "Text generation needs both --prompt N and --new-tokens N."),
        ("llama --prompt 3 --new-tokens 2 --no-train", "--no-train applies only to steps"),
    ],
)
def test_invalid_lines_get_one_sentence(folder, capsys, line, message):
    if "other" in line:
        pytest.importorskip("transformers")
    status, out, err = run(capsys, *line.split())
    assert (status, out) == (1, "")
    assert err.startswith("hpu-magic: ")
    assert message in err
