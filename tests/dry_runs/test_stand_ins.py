"""Values that the host reads in a dry run, and the lines that read them."""

import pytest
import torch

LIBRARY = """
def fit(step):
    for _ in range(3):
        total = step().item()
    return total

def evaluate(step):
    return step().item()
"""

READS = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from library.training import evaluate, fit
def step():
    return torch.randn(3, device="hpu").sum()
print(fit(step), evaluate(step), step().item())
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with an installed library."""
    place = tmp_path / "site-packages" / "library"
    place.mkdir(parents=True)
    (place / "training.py").write_text(LIBRARY)
    return str(place.parent)


def test_lines_of_libraries_are_counted_separately(dry, folder):
    result, _ = dry(READS, folder)
    for lines in (result.stand_ins, result.host_reads):
        assert [(line.place, line.code, line.count) for line in lines] == [
            ("train.py:8 (library/training.py:4)", "total = step().item()", 3),
            ("train.py:8", "print(fit(step), evaluate(step), step().item())", 1),
            ("train.py:8 (library/training.py:8)", "return step().item()", 1),
        ]
    assert "in train.py:8 (library/training.py:8): return step().item()" in str(result)
    assert result.to_dict()["stand_ins"][0]["library"]["line"] == 4


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["library/training.py:4=0.25", "training.py:8=4"], "0.25 4.0 1.0"),
        (["train.py:8=2", "library/training.py:4=3"], "3.0 2.0 2.0"),
    ],
)
def test_value_of_a_line_of_a_library(dry, folder, values, expected):
    result, output = dry(READS, folder, values=values)
    assert output.strip() == expected
    assert result.unused_values == []


def test_unused_value_and_error_name_the_lines_of_libraries(dry, folder):
    code = READS.replace("print(", "assert 1 > ")[: -len(", evaluate(step), step().item())\n")]
    result, _ = dry(code, folder, values=["library/training.py:5=0"])
    error, unused = result.warnings()
    assert error.endswith("that its line should read: --value library/training.py:4=NUMBER.")
    assert "these lines did: library/training.py:4." in unused


OVERFLOW = """
import torch
gradients = [torch.randn(5000, device="hpu"), torch.randn(3, 7, device="hpu")]
count = torch.zeros([1], device="hpu")
for each in gradients:
    count += torch.isfinite(each.amax()).logical_and(torch.isfinite(each.amin())).logical_not()
print(count.item(), count.bool().byte().to("hpu")[0].item())
finite = torch.stack([torch.isfinite(each).all() for each in gradients])
print(finite.all().item(), finite.float().mean().item(), torch.isfinite(gradients[0]).sum().item())
print(torch.isnan(gradients[0]).float().sum().item(), (gradients[0] != gradients[0]).any().item())
parameter = torch.nn.Parameter(torch.zeros(5000, device="hpu"))
parameter.grad = gradients[0]
print(torch.nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True).item())
flags = torch.isnan(gradients[0]).float()
print((flags * gradients[0]).sum().item(), (1 / flags).max().item())
flags[0] = gradients[0][0]
print(flags[0].item())
"""


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_all_values_are_finite(dry, monkeypatch, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(OVERFLOW)
    assert output.splitlines() == [
        "0.0 0",
        "True 1.0 5000",
        "0.0 False",
        "1.0",
        "1.0 1.0",
        "1.0",
    ]
    assert sum(line.count for line in result.stand_ins) == 12


def test_scaled_gradients_do_not_overflow(dry):
    result, output = dry(
        """
        import torch
        model = torch.nn.Linear(80, 80, device="hpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("hpu", init_scale=4.0)
        for _ in range(3):
            scaler.scale(model(torch.randn(8, 80, device="hpu")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        print(scaler.get_scale())
        """,
        whole=True,
    )
    assert result.steps == 3
    assert output == "4.0\n"


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_few_floating_point_numbers_of_host_data_are_computed(dry, monkeypatch, lazy):
    monkeypatch.setenv("PT_HPU_LAZY_MODE", lazy)
    result, output = dry(
        """
        import torch
        x = torch.tensor([1.0, 2.0]).to("hpu") * 2
        print(x.tolist(), (x / x.sum()).amax().item(), x.new_ones(4096).cumsum(0)[-1].item())
        weight = torch.nn.Parameter(torch.ones(2).to("hpu"))
        print((x * weight).sum().item(), (torch.randn(2, device="hpu") * x).sum().item())
        print(x.new_ones(4097).cumsum(0)[-1].item())
        """
    )
    largest = (torch.tensor(4.0) / 6).item()
    assert output.splitlines() == [f"[2.0, 4.0] {largest} 4096.0", "1.0 1.0", "1.0"]
    assert sum(line.count for line in result.stand_ins) == 3
