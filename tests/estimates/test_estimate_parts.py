"""Test parts of an estimate: arguments, calls, modules, and the search for a batch size."""

import pytest
import torch

from hpu_magic.estimates.by_module import ModuleShare, alike, merged, shares
from hpu_magic.estimates.calls import call_of
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.largest_batch import MOST, largest_batch
from hpu_magic.estimates.options import checked
from hpu_magic.estimates.tracing.recomputation import layers

nn = torch.nn


MEMORIES = {
    "even": lambda batch: 100 + 7 * batch,
    "by parts of eight": lambda batch: 100 + batch + batch // 8 * 20,
    "bent": lambda batch: 100 + batch * batch // 50,
    "at first level": lambda batch: max(1000, 30 * batch),
    "always level": lambda batch: 500,
}


@pytest.mark.parametrize("start", [1, 8, 1000])
@pytest.mark.parametrize("limit", [50, 107, 1000, 123457])
@pytest.mark.parametrize("memory", MEMORIES)
def test_largest_batch_fits_and_the_next_does_not(memory, limit, start):
    traced = []

    def needs(batch):
        traced.append(batch)
        return MEMORIES[memory](batch)

    found = largest_batch(needs, limit, start)
    assert found == 0 or MEMORIES[memory](found) <= limit
    assert found == MOST or MEMORIES[memory](found + 1) > limit
    assert len(traced) == len(set(traced)) <= 20


def test_largest_batch_with_large_weights_needs_few_traces():
    traced = []

    def needs(batch):  # gradients dominate small batches, activations large ones
        traced.append(batch)
        return max(53_000 + 140 * batch, 35_000 + 747 * batch)

    assert largest_batch(needs, 100_000, 4) == 87
    assert len(traced) <= 5


def test_modules_include_their_submodules():
    classes = {"": "Model", "layers": "ModuleList", "layers.0": "Layer", "layers.1": "Layer"}
    times = [("layers.0", 2.0, "matrix"), ("layers.1", 3.0, "vector"), ("", 1.0, "vector")]
    model = shares(classes, times, {"layers.0": 5, "": 1})
    found = {
        path: (each.kind, each.seconds, each.bytes, each.limit, dict(each.limits))
        for path, each in model.walk()
    }
    assert found == {
        "": ("Model", 6.0, 6, "vector", {"matrix": 2.0, "vector": 4.0}),
        "layers": ("ModuleList", 5.0, 5, "vector", {"matrix": 2.0, "vector": 3.0}),
        "layers.0": ("Layer", 2.0, 5, "matrix", {"matrix": 2.0}),
        "layers.1": ("Layer", 3.0, 0, "vector", {"vector": 3.0}),
    }


def test_layers_of_one_class_are_shown_as_one():
    classes = {"": "Model", "layers": "ModuleList"}
    for number in range(3):
        classes |= {f"layers.{number}": "Layer", f"layers.{number}.up": "Linear"}
    times = [(f"layers.{number}.up", 1.0 + number, "matrix") for number in range(3)]
    model = merged(shares(classes, times, {"layers.1.up": 5}))
    found = {path: (each.kind, each.seconds, each.bytes) for path, each in model.walk()}
    assert found == {
        "": ("Model", 6.0, 5),
        "layers": ("ModuleList", 6.0, 5),
        "layers.0 to 2": ("Layer", 6.0, 5),
        "layers.0 to 2.up": ("Linear", 6.0, 5),
    }


class Named(nn.Module):
    def forward(self, x, mask=None):
        return x


class Speaking(nn.Module):
    """A minimal language model."""

    def can_generate(self):
        return True

    def forward(self, input_ids, attention_mask=None, labels=None, use_cache=None):
        return input_ids


def test_dict_of_arguments_is_a_batch_and_another_dict_is_an_argument():
    x, mask = torch.ones(2), torch.zeros(2)
    assert call_of(Named(), ({"x": x, "mask": mask},), train=True) == ((), {"x": x, "mask": mask})
    other = {"image": x}
    assert call_of(Named(), (other,), train=True) == ((other,), {})
    assert call_of(Named(), (x, mask), train=True) == ((x, mask), {})


def test_training_of_a_language_model_has_labels_and_no_cache():
    ids = torch.ones(2, 4, dtype=torch.long)
    trained = {"input_ids": ids, "labels": ids, "use_cache": False}
    assert call_of(Speaking(), (ids,), train=True) == ((), trained)
    assert call_of(Speaking(), ({"input_ids": ids},), train=True) == ((), trained)
    assert call_of(Speaking(), (ids,), train=False) == ((), {"input_ids": ids})


def options(model=None, **changed):
    arguments = {
        "train": True,
        "mode": "lazy",
        "dtype": None,
        "optimizer": "adamw",
        "checkpointing": "none",
        "accumulate": 1,
        "batch": None,
        "loss": None,
    }
    return checked(nn.Linear(2, 2) if model is None else model, **(arguments | changed))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"mode": "lzay"}, "mode='lzay' is not a valid choice: did you mean 'lazy'?"),
        ({"dtype": "int4"}, "dtype='int4' is not a valid choice: use one of 'fp32', "),
        ({"checkpointing": True}, "checkpointing=True is not a valid choice: use one of 'none', "),
        ({"accumulate": 0}, "accumulate must be an integer from 1 to 1000000000, but is 0."),
        ({"batch": "all"}, "batch must be an integer from 1 to 1000000000, but is 'all'."),
    ],
)
def test_invalid_argument_is_refused_with_the_valid_ones(changed, sentence):
    with pytest.raises(EstimateError) as refused:
        options(**changed)
    assert str(refused.value).startswith(sentence)


def test_default_dtype_is_that_of_the_model():
    assert options().dtype == "fp32"
    assert options(nn.Linear(2, 2, dtype=torch.bfloat16)).dtype == "bf16"
    assert options(dtype="bf16-mixed").step.autocast is torch.bfloat16


class Layer(nn.Module):
    """A layer with a list that is not a list of layers."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(2, 2)) for _ in range(4)])
        self.norm, self.gate = nn.LayerNorm(2), nn.Linear(2, 4)


class Stage(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList([Layer() for _ in range(blocks)])
        self.smaller = nn.Linear(2, 2)


def test_layers_are_in_the_lists_of_all_parts_of_a_model():
    encoder, decoder = (nn.ModuleList([Layer() for _ in range(count)]) for count in (2, 3))
    model = nn.Sequential(encoder, decoder, nn.Linear(2, 2))
    assert layers(model) == [*encoder, *decoder]
    assert layers(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == []


def test_layers_of_a_model_in_stages_are_the_blocks_of_the_stages():
    stages = nn.ModuleList([Stage(count) for count in (2, 1, 6)])
    expected = [block for stage in stages for block in stage.blocks]
    assert layers(nn.Sequential(nn.Linear(2, 2), stages)) == expected
    assert layers(nn.Sequential(*(stage.blocks for stage in stages))) == expected


def test_merged_modules_of_different_classes_have_different_names():
    head = ModuleShare("head", "Sequential", 6.0)
    parts = {"0": ("Linear", 2.0), "1": ("GELU", 1.0), "2": ("Linear", 2.0), "3": ("GELU", 1.0)}
    for name, (kind, seconds) in parts.items():
        head.parts[name] = ModuleShare(name, kind, seconds)
    found = alike(ModuleShare("", "Net", 6.0, parts={"head": head}))
    assert [each.name for each in found.values()] == ["head.* (Linear)", "head.* (GELU)"]


def test_numbered_blocks_are_merged_but_parts_with_different_roles_are_not():
    classes, times = {"": "Net"}, []
    for number in range(3):
        block = f"encoder.encoder_layer_{number}"
        classes |= {block: "Block", f"{block}.fc1": "Linear", f"{block}.fc2": "Linear"}
        times += [(block, 1.0, "vector"), (f"{block}.fc1", 2.0, "matrix")]
        times += [(f"{block}.fc2", 3.0, "matrix")]
    for number in (1, 2):
        classes |= {f"stage{number}": "Sequential", f"stage{number}.conv": "Conv2d"}
        times += [(f"stage{number}.conv", 0.25 * number, "matrix")]
        classes |= {f"attn{number}": "Attention", f"attn{number}.out": "Linear"}
        times += [(f"attn{number}.out", 0.03125 * number, "matrix")]
    classes |= {"block1": "Block", "block1.fc1": "Linear"}
    times += [("block1.fc1", 0.125, "matrix")]
    model = shares(classes, times, {})
    assert [(each.name, each.seconds) for each in alike(model).values()] == [
        ("encoder.encoder_layer_*.fc2", 9.0),
        ("encoder.encoder_layer_*.fc1", 6.0),
        ("encoder.encoder_layer_* (Block)", 3.0),
        ("stage2.conv", 0.5),
        ("stage1.conv", 0.25),
        ("block1.fc1", 0.125),
        ("attn2.out", 0.0625),
        ("attn1.out", 0.03125),
    ]
    assert [path for path, each in merged(model).walk() if not each.parts] == [
        "encoder.encoder_layer_0 to encoder_layer_2.fc1",
        "encoder.encoder_layer_0 to encoder_layer_2.fc2",
        "stage1.conv",
        "attn1.out",
        "stage2.conv",
        "attn2.out",
        "block1.fc1",
    ]
