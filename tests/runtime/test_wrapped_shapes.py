"""Test warnings about wrapped modules that are called with many input shapes."""

import re

WRAPPED = """
import warnings
import hpu_magic

def called(module, sizes, **options):
    module = module.to("hpu")
    hpu_magic.wrap(module, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in sizes:
            module(torch.ones(size, 4, device="hpu"))
    return [str(warning.message) for warning in caught]

def listed():
    return [(line[0], *line[3:5]) for line in hpu_magic.graphs().lines()]
"""


def test_many_shapes_cause_one_warning_with_memory_and_padding(lazy_process):
    *sentences, listed = lazy_process(
        WRAPPED
        + """
model = torch.nn.Linear(4, 256)
with torch.no_grad():
    for sentence in called(model, [3, 17, 30, 3, 41, 60, 61, 90], train=False):
        print(sentence)
print(listed())
"""
    )
    assert sentences == [
        "Linear was called with 5 different input shapes (input 0 (3, 4), (17, 4), (30, 4), (41, "
        "4), (60, 4)), and each shape needs its own capture and its own graph (153 KiB so far): "
        "pad the inputs in dimension 0 to multiples of 32, which reduces the 5 sizes to 2."
    ]
    sizes = {3: 1, 17: 0, 30: 0, 41: 0, 60: 0, 61: 0, 90: 0}
    assert eval(listed) == [
        ("Linear", str(replays), f"input 0 ({size}, 4)") for size, replays in sizes.items()
    ]


def test_warning_says_which_shapes_run_without_a_graph(lazy_process):
    sentence, listed, title = lazy_process(
        WRAPPED
        + """
model = torch.nn.Linear(4, 2)
with torch.no_grad():
    print(*called(model, range(1, 6), train=False, max_graphs=2))
    model(torch.ones(5, 4, device="hpu"))
print(listed())
print(hpu_magic.graphs().title())
"""
    )
    assert "and 2 of them have graphs (" in sentence
    assert "while the others run without graphs: pad the inputs in dimension 0" in sentence
    calls = [line[1] for line in eval(listed)]
    assert calls == ["0", "0", "1 calls without", "1 calls without", "2 calls without"]
    assert re.match(r"2 graphs on HPU \d \(simulated GAUDI2\)", title)


def test_only_shapes_of_training_cause_a_warning_if_wrapped_for_training(lazy_process):
    assert lazy_process(
        WRAPPED
        + """
for mode in (True, False):
    model = torch.nn.Linear(4, 2).train(mode)
    print(["to multiples of 8" in warning for warning in called(model, range(1, 9), train=True)])
"""
    ) == ["[True]", "[]"]


def test_warning_for_changing_ranks_suggests_a_few_sizes(lazy_process):
    (sentence,) = lazy_process(
        WRAPPED
        + """
class Sum(torch.nn.Module):
    def forward(self, x, by=None):
        return x.sum()
module = Sum()
hpu_magic.wrap(module, train=False)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for rank in range(5):
        module(x=torch.ones((2,) * rank, device="hpu"))
print(*(warning.message for warning in caught))
"""
    )
    assert "5 different input shapes (x (), (2,), (2, 2), (2, 2, 2), (2, 2, 2, 2))" in sentence
    assert sentence.endswith(": pad the inputs to a few sizes.")
