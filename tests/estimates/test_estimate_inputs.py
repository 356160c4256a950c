"""Test supported inputs of a model, and errors for unsupported inputs."""

import random
from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.estimate import estimate
from hpu_magic.estimates.largest_batch import MOST

nn = torch.nn


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.GELU(), nn.Linear(16, 4)))


X = torch.empty(2, 8)


@dataclass(slots=True)
class Batch:
    x: torch.Tensor
    scale: float = 1.0


class Reading(nn.Linear):
    """A layer whose input is in a container."""

    def __init__(self, read):
        super().__init__(8, 8)
        self.read = read

    def forward(self, record):
        return super().forward(self.read(record))


@pytest.mark.parametrize(
    ("read", "inputs"),
    [
        (lambda one: one.x * one.scale, Batch(X)),
        (lambda one: one["inner"][0].x, {"inner": [Batch(X)]}),
        (lambda one: one["x"], UserDict(x=X)),
    ],
)
def test_inputs_can_be_in_records(read, inputs):
    found = estimate(Reading(read), inputs, batch=6)
    assert (found.batch, found.memory["inputs"]) == (6, 6 * 8 * 4)
    assert X.shape == (2, 8)


class Seeing(nn.Module):
    """A model for images or texts that also accepts labels."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(16, 8), nn.Linear(8, 4)

    def forward(self, x, labels=None, input_ids=None):
        features = x.float() if x.dim() == 4 else self.words(x)
        if input_ids is not None:
            features = features + self.words(input_ids).sum()
        return self.head(features)


IMAGES = torch.empty(2, 3, 8, 8)
LABELS = torch.empty(2, dtype=torch.long)
IDS = torch.empty(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ("inputs", "tokens"),
    [
        ((IDS, LABELS), 10),
        ((IMAGES, LABELS), 0),
        ((IMAGES.to(torch.uint8), LABELS), 0),
        ((IMAGES, torch.empty(2, 8, 8, dtype=torch.long)), 0),
        ({"x": IMAGES, "labels": LABELS, "input_ids": IDS}, 10),
    ],
)
def test_images_and_labels_are_not_tokens(inputs, tokens):
    args = (inputs,) if isinstance(inputs, dict) else inputs
    found = estimate(Seeing(), *args, mode="lazy")
    assert (found.program.samples, found.program.tokens) == (2, tokens)
    assert ("tokens/s" in str(found)) == bool(tokens)


class Returning(nn.Linear):
    """A layer whose output is in a container."""

    def __init__(self, wrap):
        super().__init__(8, 8)
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(super().forward(x))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: (y, None, 3),
        lambda y: [Batch({"a": y})],
        lambda y: Batch(torch.view_as_complex(y.reshape(-1, 2))),
    ],
)
def test_outputs_can_be_in_records(wrap):
    assert estimate(Returning(wrap), X, mode="eager").memory["gradients"] == 4 * (64 + 8)


@pytest.mark.parametrize(
    ("wrap", "description"), [(lambda y: None, "None"), (lambda y: y.argmax(-1), r"int64\[2\]")]
)
def test_error_describes_an_output_without_a_gradient(wrap, description):
    with pytest.raises(
        EstimateError, match=f"returns {description}, which does not depend on any par"
    ):
        estimate(Returning(wrap), X)
    assert estimate(Returning(wrap), X, train=False).seconds > 0


def test_inputs_by_name_equal_inputs_in_a_dict():
    model = nn.Bilinear(4, 4, 4)
    x = torch.empty(2, 4)
    named = estimate(model, input1=x, input2=x, batch=8)
    assert named.batch == 8
    for other in (estimate(model, x, input2=x, batch=8), estimate(model, x, x, batch=8)):
        assert (other.seconds, other.memory) == (named.seconds, named.memory)


@pytest.mark.parametrize(
    ("name", "suggestion"), [("dytpe", "'dtype'"), ("input3", "'input2' or 'input1'")]
)
def test_unknown_name_is_refused_with_a_similar_one(name, suggestion):
    with pytest.raises(EstimateError) as refused:
        estimate(nn.Bilinear(4, 4, 4), torch.empty(2, 4), **{name: torch.empty(2, 4)})
    assert str(refused.value) == (
        f"{name!r} is not an argument of the estimate or of Bilinear: did you mean {suggestion}?"
    )


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        (
            (torch.empty(2, 7),),
            "0 (Linear) of Sequential cannot process float32[2, 7]: a and b must have same "
            "reduction dim, but got [2, 7] X [8, 16]. Sequential was called with float32[2, 7].",
        ),
        (
            (torch.ones(2, 8, dtype=torch.long),),
            "0 (Linear) of Sequential cannot process int64[2, 8]: a matmul cannot combine "
            "torch.float32 and torch.int64. Sequential was called with int64[2, 8].",
        ),
        (
            ("text",),
            "0 (Linear) of Sequential cannot process a str: linear(): argument 'input' (position "
            "1) must be Tensor, not str. Sequential was called with a str.",
        ),
        (
            (X, X),
            "Sequential cannot process float32[2, 8], float32[2, 8]: Sequential.forward() takes 2 "
            "positional arguments but 3 were given.",
        ),
        (
            (torch.empty(0, 8),),
            "The inputs of Sequential, float32[0, 8], are empty: pass at least one sample.",
        ),
        (
            (X.to_sparse(),),
            "The input float32[2, 8] has the layout torch.sparse_coo, but must be dense: use "
            "to_dense().",
        ),
    ],
)
def test_error_names_the_module_that_cannot_process_an_input(model, caplog, inputs, sentence):
    with pytest.raises(EstimateError) as refused:
        estimate(model, *inputs)
    assert str(refused.value) == sentence
    assert not caplog.records


def test_error_names_a_missing_input():
    with pytest.raises(EstimateError, match=r"process float32\[2, 4\]: .*argument: 'input2'\.$"):
        estimate(nn.Bilinear(4, 4, 4), torch.empty(2, 4))


def test_error_of_a_model_includes_its_line():
    class Choosy(nn.Module):
        def forward(self, x):
            raise KeyError("three channels")

    with pytest.raises(EstimateError) as refused:
        estimate(nn.Sequential(nn.Linear(8, 8), Choosy()), X)
    line = Choosy.forward.__code__.co_firstlineno + 1
    assert str(refused.value) == (
        "1 (Choosy) of Sequential cannot process float32[2, 8]: KeyError: 'three channels' "
        f'(test_estimate_inputs.py, line {line}: raise KeyError("three channels")). Sequential '
        "was called with float32[2, 8]."
    )
    assert isinstance(refused.value.__cause__, KeyError)


def test_operations_without_elements_take_no_time():
    class Joining(nn.Linear):
        def forward(self, x):
            return torch.cat([super().forward(x), super().forward(x[:0])])

    assert estimate(Joining(8, 8), X).seconds > 0


def test_note_on_a_batch_that_always_fits():
    found = estimate(nn.Linear(4, 4), torch.empty(2, 4), batch="largest")
    assert found.batch == MOST
    assert found.notes()[-1] == "The search for the largest batch stops at 1048576, which fits."


def test_model_without_operations_is_refused():
    with pytest.raises(EstimateError, match="Identity does not run any operations on the card"):
        estimate(nn.Identity(), X, train=False)


def test_random_state_of_the_host_is_restored():
    class Drawing(nn.Linear):
        def forward(self, x):
            drawn.append((random.random(), np.random.rand()))
            return super().forward(x)

    drawn = []
    before = random.getstate(), np.random.get_state()[2]
    for _ in range(2):
        estimate(Drawing(8, 8), X, train=False)
    assert drawn[0] == drawn[1]
    assert (random.getstate(), np.random.get_state()[2]) == before
