"""Test large tensors of zeros, which need no host memory until other values are written."""

import os

import pytest

SCRIPT = """
import resource, torch

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # in MiB

torch.ones(1, device="hpu").cpu()
before = peak()
x = torch.zeros(40 << 30, dtype=torch.int8, device="hpu")
x[5] = 7
print(x[:8].cpu().tolist(), x[-1].cpu().item())
x.zero_()
print(x[:8].cpu().tolist(), torch.hpu.memory_allocated() >> 30, peak() - before < 1000)
"""


@pytest.mark.once
@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_forty_gigabytes_of_zeros_fit_on_a_small_host(forked_script, lazy):
    printed = forked_script(SCRIPT, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()[-2:]
    assert printed == ["[0, 0, 0, 0, 0, 7, 0, 0] 0", "[0, 0, 0, 0, 0, 0, 0, 0] 40 True"]


FULL = """
import torch
for make in (
    lambda: torch.full((40 << 30,), 7, dtype=torch.int8, device="hpu"),
    lambda: torch.empty(10 << 30, device="hpu").uniform_(),
):
    try:
        make()[0].cpu()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


@pytest.mark.skipif(
    os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 40 << 30,
    reason="the machine has enough memory",
)
@pytest.mark.once
@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_other_values_than_the_host_can_store_are_an_error(forked_script, lazy):
    printed = forked_script(FULL, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()[-2:]
    assert len(printed) == 2
    fix = "or set HPU_MAGIC_MEMORY to a smaller size."
    assert all(fix in line for line in printed)


PART = """
import torch
x = torch.arange(1, (4 << 20) + 1, dtype=torch.int32, device="hpu")
x[3 : (3 << 20) + 5].zero_()
host = x.cpu()
print(host[:4].tolist(), host[(3 << 20) + 4 : (3 << 20) + 6].tolist(), host.count_nonzero().item())
"""


def test_only_the_view_becomes_zero(forked_script):
    first = 3 << 20
    expected = f"[1, 2, 3, 0] [0, {first + 6}] {(4 << 20) - first - 2}"
    assert forked_script(PART, simulated=True).splitlines()[-1] == expected
