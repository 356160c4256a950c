"""Test card time in profiles, ledgers and fits."""

import json
import re

import pytest

import hpu_magic
from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.fits.head import head_of
from hpu_magic.panels.rank_table import RankTable
from hpu_magic.runtime.measure.card_time import CardTime
from hpu_magic.runtime.training.progress import FitProgress
from hpu_magic.runtime.training.ranks import RankState

# Card time is measured in the mode of this process.
pytestmark = pytest.mark.once

ESTIMATE = r"[\d.]+ [µm]s{} \(estimate: [\d.]+ [µm]s to [\d.]+ [µm]s\)"
LOOP = """
model = torch.nn.Linear(8, 8).to("hpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.ones(4, 8)] * 6
def step(batch):
    loss = model(batch.to("hpu")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


@pytest.fixture
def x(shell, torch):
    """A matrix on the device, which is also a variable in the notebook."""
    shell.user_ns["x"] = torch.ones(128, 128, device="hpu")
    return shell.user_ns["x"]


@pytest.fixture
def clock(run, x):
    """The clock of the card, with an ideal host."""
    from hpu_magic.simulator import card_time

    run("%config HPUMagics.card_time = 'ideal'")
    yield card_time
    run("%config HPUMagics.card_time = 'off'")


def test_profile_lists_the_card_time_of_operators(run, shell, clock, tmp_path):
    cell = run(
        f"%%hpu_profile --dir {tmp_path} -o report\nfor _ in range(3):\n    y = x @ x\nz = y + 1"
    )
    report = shell.user_ns["report"]
    assert "card time (estimate)" in report.columns()
    product, addition = report.operators[:2]
    assert (product.name, product.calls) == ("aten::mm", 3)
    assert addition.name == "aten::add"
    assert product.host > 0
    assert product.card + addition.card == pytest.approx(report.card.seconds, rel=1e-6)
    assert re.search(rf"Card time: {ESTIMATE.format('')}\. Use: \w+ \d+%, .*host \d+%\.", cell.out)


def test_trace_of_a_profile_has_a_track_for_each_part_of_the_card(run, shell, clock, tmp_path):
    run("x + x\n%hpu_time -n 1 -r 1 x + x\nfrom hpu_magic import profile")
    run(f"%%hpu_profile --dir {tmp_path} -o report\ny = x @ x")
    with open(shell.user_ns["report"].trace) as file:
        events = json.load(file)["traceEvents"]
    on_card = [each for each in events if each["pid"] == "card time"]
    names = {each["args"]["name"] for each in on_card if each["name"] == "thread_name"}
    assert names == {"host", "matrix", "vector", "memory", "links", "launch"}
    [title] = [each["args"]["name"] for each in on_card if each["name"] == "process_name"]
    assert re.fullmatch(r"Card time \(estimate; .* 0\.\d+ to [\d.]+ times as long\)", title)
    spans = [each for each in on_card if each["ph"] == "X"]
    assert {each["name"] for each in spans} == {"aten::mm"}
    here = [each["ts"] for each in events if each["ph"] == "X" and each["pid"] != "card time"]
    assert min(each["ts"] for each in spans) == pytest.approx(min(here))


def test_recorded_block_remains_in_an_outer_recording(torch, x, clock):
    clock.start(records=True)
    x + 1
    with clock.recording() as inner:
        x * 2
    x - 3
    outer = [each.name for each in clock.take_records()]
    assert [each.name for each in inner] == ["aten::mul.Tensor"]
    assert outer == ["aten::add.Tensor", "aten::mul.Tensor", "aten::sub.Tensor"]


def test_ledger_shows_the_card_time_of_a_cell(run, clock):
    run("%hpu_ledger on")
    cell = run("for _ in range(100):\n    y = x[:1, :1] + 1")
    assert re.search(rf": nothing compiled; card time {ESTIMATE.format('')}; peak ", cell.out)
    report = run("%hpu_ledger last").result
    assert report.card.seconds == pytest.approx(100 * FITTED.launch_seconds, rel=0.01)
    assert report.to_dict()["card"]["seconds"] == report.card.seconds
    run("%hpu_ledger on --show card")
    assert re.search(rf"\): card time {ESTIMATE.format('')}$", run("y = x + 1").out.strip())


def test_ledger_shows_the_time_to_compile_graphs(compile_on_hpu, x, clock):
    compiled = compile_on_hpu(lambda x: (x * 2).sin())
    with hpu_magic.ledger() as first:
        compiled(x)
    with hpu_magic.ledger() as second:
        compiled(x)
    assert first.card.seconds == pytest.approx(second.card.seconds)
    assert first.card.compilation > second.card.compilation == 0
    assert re.search(r"\), after compiling graphs in [\d.]+ [µm]?s", first.title())
    assert "after compiling" not in second.title()


def test_fit_shows_the_card_time_of_a_step(run, clock):
    run("import torch, hpu_magic" + LOOP)
    before = clock.read()
    cell = run("for batch in (watched := hpu_magic.watch(batches)):\n    step(batch)")
    result = run("watched.result").result
    assert result.card_step.seconds == pytest.approx((clock.read().end - before.end) / 6, rel=1e-3)
    assert re.search(rf"card time +{ESTIMATE.format(' per step')}$", cell.out, re.MULTILINE)


def test_validation_is_not_part_of_the_card_time_of_a_step(run, clock):
    run("import torch, hpu_magic" + LOOP)
    loop = """for batch in (watched := hpu_magic.watch(batches, epochs=2)):
    step(batch)
    with torch.no_grad():
        for other in hpu_magic.watch(batches):
            model(other.to("hpu")){}"""
    run(loop.format(""))
    few = run("watched.result").result.card_step.seconds
    run(loop.format(".cos()" * 50))
    assert run("watched.result").result.card_step.seconds == pytest.approx(few)


def test_panel_shows_the_card_time_next_to_the_pace():
    progress = FitProgress(training_began=0.0, steps=3, training_seconds=0.3)
    progress.card_step = CardTime(2e-3, (0.5, 2.0))
    head = head_of(progress, "Net", "HPU 0")
    card = "card time 2.00 ms per step (estimate: 1.00 ms to 4.00 ms)"
    assert head.details == ("10.0 steps/s", card, "HPU 0")
    assert card in head.html


def test_nothing_changes_if_the_clock_is_off(run, x):
    profile = run("%%hpu_profile --no-trace\nx @ x").out
    run("%hpu_ledger on")
    line = run("y = x + 1").out
    run("%hpu_ledger off\nimport torch, hpu_magic" + LOOP)
    fit = run("for batch in hpu_magic.watch(batches):\n    step(batch)").out
    for output in (profile, line, fit):
        assert output
        assert "card time" not in output.lower()


def test_clock_that_starts_again_during_a_block_is_not_measured(x, clock):
    x @ x
    with hpu_magic.ledger() as costs:
        clock.start()
        x + 1
    assert costs.card is None


def test_rank_table_has_a_column_for_the_card_time():
    step = CardTime(2e-3, (0.5, 2.0))
    table = RankTable([RankState(0, "a", 1, 0, steps=5, card_step=step), RankState(1, "a", 2)])
    assert table.columns()[-1] == "card time of a step"
    assert [line[-1] for line in table.lines()] == ["2.00 ms (estimate: 1.00 ms to 4.00 ms)", ""]


def test_child_processes_have_the_same_clock(run, clock):
    run("import os")
    assert run("os.environ['HPU_MAGIC_CARD_TIME']").result == "ideal"
    run("%config HPUMagics.card_time = 'off'")
    assert run("os.environ['HPU_MAGIC_CARD_TIME']").result == "0"
