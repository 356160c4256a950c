"""Test %hpu_memory, %%hpu_memory and hpu_magic.memory."""

import re

import pytest

import hpu_magic
from hpu_magic import units
from hpu_magic.runtime.execution.facts import facts
from hpu_magic.runtime.measure.memory import MemoryReport

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


def test_report_contains_the_documented_keys_in_order(run, ns, torch):
    cell = run("%hpu_memory")
    assert list(cell.result.stats) == [
        *("Limit", "InUse", "MaxInUse", "NumAllocs", "NumFrees", "ActiveAllocs", "MaxAllocSize"),
        *("TotalSystemAllocs", "TotalSystemFrees", "TotalActiveAllocs"),
    ]
    assert cell.result.stats["InUse"] == torch.hpu.memory_allocated()
    assert "96.0 GiB" in cell.out
    assert "simulated" in cell.out
    assert hpu_magic.memory().stats["Limit"] == cell.result.stats["Limit"]


def test_all_lists_every_variable(run, ns, torch):
    ns.update({f"held{number}": torch.ones(1, device="hpu") for number in range(15)})
    assert "held14" not in run("%hpu_memory").out
    assert "held14" in run("%hpu_memory --all").out
    body = "new = [torch.ones(1, device='hpu') for _ in range(15)]\n"
    body += "globals().update({f'new{number}': one for number, one in enumerate(new)}); del new"
    assert "in 3 other variables" in run(f"%%hpu_memory\n{body}").out
    run("for number in range(15): del globals()[f'new{number}']")
    assert "left in new14" in run(f"%%hpu_memory --all\n{body}").out


def test_statistics_have_a_description_next_to_the_vendors_key(run, ns, torch):
    cell = run("%hpu_memory")
    descriptions, _, keys = zip(*cell.result.lines(), strict=True)
    assert list(keys) == list(cell.result.stats)
    assert all(descriptions)
    assert len(set(descriptions)) == len(keys)
    stats = cell.result.stats
    lines = [line.split() for line in cell.out.splitlines()]
    assert ["in", "use", *units.size(stats["InUse"]).split(), "InUse"] in lines
    assert ["allocations", f"{stats['NumAllocs']:,}", "NumAllocs"] in lines
    # A key of a later release has no description.
    later = MemoryReport({"Limit": 1 << 30, "NumDefrags": 168537})
    assert later.lines()[1] == ("", "168,537", "NumDefrags")


def test_cell_shows_before_after_and_peak(used, ns):
    use = used(
        "a = torch.zeros(1 << 18, device='hpu')\nb = torch.zeros(1 << 19, device='hpu')\ndel b"
    )
    assert use.after - use.before == MIB
    assert use.peak - use.before == 3 * MIB


def test_cell_lists_the_variables_that_keep_new_memory(used, ns, torch):
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


def test_new_variable_counts_even_if_it_reuses_freed_memory(used, ns, torch):
    ns["x"] = torch.zeros(1 << 18, device="hpu")
    assert used("del x\ny = torch.zeros(1 << 18, device='hpu')").left == {"y": MIB}


def test_float64_tensor_counts_with_four_bytes_per_element(used, ns, torch):
    use = used("wide = torch.zeros(1 << 18, dtype=torch.float64, device='hpu')")
    assert use.left == {"wide": MIB}
    assert use.after - use.before == MIB


def test_displayed_value_is_listed_as_out(used, ns):
    use = used("torch.zeros(1 << 18, device='hpu')")
    assert list(use.left.values()) == [MIB]
    assert next(iter(use.left)).startswith("Out[")


def test_failed_cell_is_reported_too(run, ns):
    cell = run("%%hpu_memory\nkept = torch.zeros(1 << 18, device='hpu')\n1 / 0")
    assert isinstance(cell.error, ZeroDivisionError)
    assert "left in kept  1.00 MiB" in cell.out


def test_tensors_of_the_last_traceback_are_listed(run, ns):
    run("def step():\n    held = torch.zeros(1 << 18, device='hpu')\n    1 / 0")
    assert "left in the last traceback  1.00 MiB" in run("%%hpu_memory\nstep()").out


def test_report_says_that_a_cell_keeps_no_tensors(run, ns):
    assert "left no new tensors" in run("%%hpu_memory\n1 + 1").out


MEASURES = {
    "nothing": "pass",
    "cell": "%%hpu_memory\ny = torch.zeros(1 << 18, device='hpu')\ndel y",
    "ledger": "%hpu_ledger on\ny = torch.zeros(1 << 18, device='hpu')\n%hpu_ledger off\ndel y",
    "fit": "for _ in hpu_magic.watch(range(3)): y = torch.zeros(1 << 18, device='hpu')\ndel y",
    "panel": "hpu_magic.memory_live()",
}


@pytest.mark.parametrize("measure", MEASURES)
def test_measurements_do_not_reset_the_users_peak(run, ns, torch, measure):
    ns["hpu_magic"] = hpu_magic
    ns["kept"] = torch.zeros(1 << 20, device="hpu")
    torch.hpu.reset_peak_memory_stats()
    before = torch.hpu.memory_allocated()
    big = torch.zeros(1 << 21, device="hpu")
    del big
    for _ in range(2):
        assert run(MEASURES[measure]).error is None
    report = run("%hpu_memory").result
    assert report.stats["MaxInUse"] == before + 8 * MIB
    assert facts().peak == before + 8 * MIB
    for reset in (torch.hpu.reset_peak_memory_stats, torch.hpu.reset_accumulated_memory_stats):
        reset()
        assert run("%hpu_memory").result.stats["MaxInUse"] == report.stats["InUse"]
        small = torch.zeros(1 << 17, device="hpu")
        del small
        assert run("%hpu_memory").result.stats["MaxInUse"] == report.stats["InUse"] + MIB // 2


def test_reset_in_a_measured_cell_does_not_change_the_cells_peak(used, ns):
    use = used(
        "big = torch.zeros(1 << 20, device='hpu'); del big\n"
        "torch.hpu.reset_peak_memory_stats()\n"
        "small = torch.zeros(1 << 18, device='hpu'); del small"
    )
    assert use.peak - use.before == 4 * MIB
    assert hpu_magic.memory().stats["MaxInUse"] == use.after + MIB


def test_report_does_not_acquire_a_card(forked_script):
    out = forked_script(
        """
        import hpu_magic
        print(hpu_magic.memory().stats)
        import torch
        print(hpu_magic.memory())
        print(torch.hpu.is_initialized())
        """,
        simulated=True,
        hides_torch=True,
    )
    assert out.splitlines()[0] == "{}"
    assert "has no card yet" in out
    assert out.splitlines()[-1] == "False"


LAYERED = """
class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = torch.nn.Linear(256, 256, bias=False)
        self.feed = torch.nn.Linear(256, width, bias=False)
class Model(torch.nn.Module):
    def __init__(self, widths=[1024] * 12, layer=Layer):
        super().__init__()
        self.embed = torch.nn.Embedding(512, 256)
        self.stack = torch.nn.Module()
        self.stack.layers = torch.nn.ModuleList(map(layer, widths))
        self.head = torch.nn.Linear(256, 512, bias=False)
        self.head.weight = self.embed.weight
"""


def held_by(report):
    """Return the rows of the table of variables below the statistics."""
    text = repr(report).replace("\N{NO-BREAK SPACE}", " ").partition("Held by variables\n")[2]
    return [tuple(re.split("  +", line.strip())) for line in text.splitlines()[1:]]


def test_equal_layers_share_a_row(run, ns):
    run(LAYERED)
    report = run("model = Model().to('hpu')\n%hpu_memory").result
    assert held_by(report)[:5] == [
        ("model", "15.5 MiB", "Model"),
        ("model.stack.layers.*", "15.0 MiB", "12 Layer, 1.25 MiB each"),
        ("model.stack.layers.*.feed", "12.0 MiB", "12 Linear, 1.00 MiB each"),
        ("model.stack.layers.*.attention", "3.00 MiB", "12 Linear, 256 KiB each"),
        ("model.embed", "512 KiB", "Embedding"),  # the head shares its weights
    ]
    assert "<td" in report._repr_html_()
    assert "model.stack.layers.*.feed" in report._repr_html_()


def test_layers_of_different_classes_have_separate_rows(run, ns):
    run(LAYERED)
    run(
        "class Wide(Layer): pass\n"
        "def layer(width): return (Wide if width > 2000 else Layer)(width)\n"
        "model = Model([1024, 1024, 2048, 3072], layer)\n"
        "model = model.to('hpu')"
    )
    assert held_by(run("%hpu_memory").result)[1:5] == [
        ("model.stack.layers.Wide*", "5.50 MiB", "2 Wide, 2.25 MiB to 3.25 MiB"),
        ("model.stack.layers.Wide*.feed", "5.00 MiB", "2 Linear, 2.00 MiB to 3.00 MiB"),
        ("model.stack.layers.Wide*.attention", "512 KiB", "2 Linear, 256 KiB each"),
        ("model.stack.layers.Layer*", "2.50 MiB", "2 Layer, 1.25 MiB each"),
    ]


def test_gradients_optimizers_and_owners_of_models_are_listed(run, ns):
    run(
        "optimizer = None\n"
        "model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), "
        "torch.nn.Linear(256, 256)).to('hpu')\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "model(torch.ones(1, 256, device='hpu')).sum().backward(); optimizer.step()\n"
        "class Trainer: pass\n"
        "trainer = Trainer(); trainer.model = torch.nn.Linear(512, 512, bias=False).to('hpu')\n"
        "batch = torch.ones(3, 1024, device='hpu')"
    )
    assert held_by(run("%hpu_memory").result)[:8] == [
        ("model", "1.00 MiB", "Sequential, 514 KiB of it gradients"),
        ("model.0", "514 KiB", "Linear"),
        ("model.2", "514 KiB", "Linear"),
        ("optimizer", "1.00 MiB", "AdamW"),
        ("trainer", "1.00 MiB", "Trainer"),
        ("trainer.model", "1.00 MiB", "Linear"),
        ("batch", "12.0 KiB", "3 x 1024, float32"),
    ]


def test_cell_lists_the_modules_that_keep_new_memory(run, ns):
    run(LAYERED)
    out = run("%%hpu_memory\nmodel = Model().to('hpu')").out.replace("\N{NO-BREAK SPACE}", " ")
    rows = [tuple(re.split("  +", line.strip())) for line in out.splitlines()]
    start = rows.index(("left in model", "15.5 MiB"))
    assert rows[start + 1 :] == [
        ("model.stack.layers.*", "15.0 MiB (12 Layer, 1.25 MiB each)"),
        ("model.stack.layers.*.feed", "12.0 MiB (12 Linear, 1.00 MiB each)"),
        ("model.stack.layers.*.attention", "3.00 MiB (12 Linear, 256 KiB each)"),
        ("model.embed", "512 KiB (Embedding)"),
    ]


def test_memory_for_a_later_backward_pass_is_listed_separately(run, ns):
    ns["model"] = run("torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(4)))").result
    ns["x"] = run("torch.zeros(1 << 18, device='hpu', requires_grad=True)").result
    out = run("%%hpu_memory\ny = model(x).sum()").out
    assert "left elsewhere  4.00 MiB" in out
    assert "is kept for a later backward pass" in out
    run("%%hpu_memory\ndel y")
    out = run("%%hpu_memory\nwith torch.no_grad():\n    y = model(x).sum()").out
    assert "elsewhere" not in out
