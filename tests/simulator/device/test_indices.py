"""Test indices out of range, which a card does not check."""

import pytest
import torch

SIZE = 3


def table():
    return torch.arange(SIZE * 2.0).reshape(SIZE, 2)


def at(*indices, dtype=torch.long):
    return torch.tensor(indices, dtype=dtype, device="hpu")


@pytest.mark.filterwarnings("ignore:aten::")
@pytest.mark.parametrize("dtype", [torch.long, torch.int32], ids=str)
@pytest.mark.parametrize(
    "read",
    [
        lambda self, index: self.index_select(0, index),
        lambda self, index: torch.nn.functional.embedding(index, self),
        lambda self, index: self.gather(0, index.long().unsqueeze(1).expand(-1, 2)),
    ],
    ids=["index_select", "embedding", "gather"],
)
def test_negative_index_reads_from_the_end_and_a_large_one_the_last_row(read, dtype):
    actual = read(table().to("hpu"), at(-1, 0, -3, 7, dtype=dtype)).cpu()
    assert actual.tolist() == table()[[2, 0, 0, 2]].tolist()


@pytest.mark.filterwarnings("ignore:aten::")
@pytest.mark.parametrize(
    ("write", "last"),
    [
        (lambda self, index, rows: self.index_copy_(0, index, rows), 9.0),
        (lambda self, index, rows: self.index_add_(0, index, rows), 13.0),
        (lambda self, index, rows: self.index_reduce_(0, index, rows, "amax"), 9.0),
        (lambda self, index, _: self.index_fill_(0, index, 9.0), 9.0),
    ],
    ids=["index_copy_", "index_add_", "index_reduce_", "index_fill_"],
)
def test_negative_index_writes_from_the_end_and_a_large_one_is_dropped(write, last):
    tensor = table().to("hpu")
    write(tensor, at(-1, 7), torch.full((2, 2), 9.0, device="hpu"))
    assert tensor.cpu()[:2].tolist() == table()[:2].tolist()
    assert tensor.cpu()[2, 0].item() == last


def test_class_out_of_range_is_a_row_of_zeros():
    rows = torch.nn.functional.one_hot(at(1, -1, 5), num_classes=3).cpu()
    assert rows.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]


WARNED = """
import torch, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        torch.ones(3, device="hpu").index_select(0, torch.tensor([-1], device="hpu")).cpu()
print(len(caught), caught[0].message)
"""


def test_each_line_is_reported_once(forked_script):
    printed = forked_script(WARNED, simulated=True).splitlines()[-1]
    assert printed.startswith("1 aten::index_select has indices from -1 to -1 for 3 elements")


ERROR = """
import torch
try:
    torch.ones(3, device="hpu").index_select(0, torch.tensor([-1], device="hpu")).cpu()
except (IndexError, RuntimeError) as error:
    print(error)
"""


def test_flag_makes_it_an_error(forked_script):
    printed = forked_script(ERROR, simulated=True, HPU_MAGIC_CHECK_INDICES="1")
    assert "index_select has indices from -1 to -1 for 3 elements; use indices from 0" in printed
