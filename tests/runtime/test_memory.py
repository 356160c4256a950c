"""%hpu_memory, %%hpu_memory and hpu_magic.memory."""

from __future__ import annotations

import pytest

import hpu_magic
from hpu_magic import units
from hpu_magic.runtime.measure.memory import MemoryReport

KEYS = [
    "Limit",
    "InUse",
    "MaxInUse",
    "NumAllocs",
    "NumFrees",
    "ActiveAllocs",
    "MaxAllocSize",
    "TotalSystemAllocs",
    "TotalSystemFrees",
    "TotalActiveAllocs",
]
MIB = 1 << 20


@pytest.fixture
def ns(shell, torch):
    shell.user_ns["torch"] = torch
    torch.ones(1, device="hpu")
    return shell.user_ns


@pytest.fixture
def used(run, ns):
    """Run a cell under %%hpu_memory and return its report."""

    def measure(body):
        run(f"%%hpu_memory -o use\n{body}")
        return ns["use"]

    return measure


def test_line_shows_the_documented_keys_in_their_order(run, ns, torch):
    cell = run("%hpu_memory")
    assert list(cell.result.stats) == KEYS
    assert cell.result.stats["InUse"] == torch.hpu.memory_allocated()
    assert "96.0 GiB" in cell.out
    assert "simulated" in cell.out
    assert hpu_magic.memory().stats["Limit"] == cell.result.stats["Limit"]


def test_statistics_are_told_in_words_beside_the_vendors_keys(run, ns, torch):
    cell = run("%hpu_memory")
    assert [line[2] for line in cell.result.lines()] == KEYS
    assert all(line[0] for line in cell.result.lines())
    assert len({line[0] for line in cell.result.lines()}) == len(KEYS)
    stats = cell.result.stats
    lines = [line.split() for line in cell.out.splitlines()]
    assert ["in", "use", *units.size(stats["InUse"]).split(), "InUse"] in lines
    assert ["allocations", str(stats["NumAllocs"]), "NumAllocs"] in lines
    # What another release of the bridge adds has its key.
    coming = MemoryReport({"Limit": 1 << 30, "NumDefrags": 3})
    assert coming.lines()[1] == ("", "3", "NumDefrags")


def test_cell_shows_before_after_and_peak(used, ns):
    use = used(
        "a = torch.zeros(1 << 18, device='hpu')\nb = torch.zeros(1 << 19, device='hpu')\ndel b"
    )
    assert use.after - use.before == MIB
    assert use.peak - use.before == 3 * MIB


def test_cell_names_what_it_left_behind(used, ns, torch):
    ns["old"] = torch.zeros(1 << 18, device="hpu")
    use = used(
        "a = {'deep': [torch.zeros(1 << 18, device='hpu')]}\n"
        "view = a['deep'][0][:10]\n"
        "model = torch.nn.Linear(256, 256, bias=False).to('hpu')\n"
        "model(torch.ones(1, 256, device='hpu')).sum().backward()\n"
        "other = old\n"
        "gone = torch.zeros(1 << 18, device='hpu'); del gone"
    )
    assert use.left == {"a": MIB, "model": 2 * 256 * 256 * 4}
    assert use.after - use.before == sum(use.left.values())


def test_a_rebound_name_counts_although_its_memory_is_used_again(used, ns, torch):
    ns["x"] = torch.zeros(1 << 18, device="hpu")
    assert used("del x\ny = torch.zeros(1 << 18, device='hpu')").left == {"y": MIB}


def test_a_float64_is_left_with_the_four_bytes_that_a_card_takes(used, ns, torch):
    use = used("wide = torch.zeros(1 << 18, dtype=torch.float64, device='hpu')")
    assert use.left == {"wide": MIB}
    assert use.after - use.before == MIB


def test_displayed_value_is_left_in_out(used, ns):
    use = used("torch.zeros(1 << 18, device='hpu')")
    assert list(use.left.values()) == [MIB]
    assert next(iter(use.left)).startswith("Out[")


def test_cell_that_raised_is_reported_as_well(run, ns):
    cell = run("%%hpu_memory\nkept = torch.zeros(1 << 18, device='hpu')\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "left in kept  1.00 MiB" in cell.out


def test_what_a_traceback_keeps_alive_is_named(run, ns):
    run("def step():\n    held = torch.zeros(1 << 18, device='hpu')\n    1 / 0")
    assert "left in the last traceback  1.00 MiB" in run("%%hpu_memory\nstep()").out


def test_cell_that_left_nothing_says_so(run, ns):
    assert "left no new tensors" in run("%%hpu_memory\n1 + 1").out


def test_without_a_card_none_is_taken(script):
    out = script(
        """
        import hpu_magic
        print(hpu_magic.memory().stats)
        import torch
        print(hpu_magic.memory())
        print(torch.hpu.is_initialized())
        """,
        simulated=True,
    )
    assert out.splitlines()[0] == "{}"
    assert "taken no card yet" in out
    assert out.splitlines()[-1] == "False"
