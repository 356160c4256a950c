"""Test the clock of the simulated card."""

import json
import time

import pytest

from hpu_magic.estimates.cost.constants import FITTED
from hpu_magic.estimates.cost.hardware import generation_named
from hpu_magic.simulator import card_time, engine

# Processes in lazy mode have tests of their own below.
pytestmark = pytest.mark.once

LAUNCH = FITTED.launch_seconds


@pytest.fixture
def clock(torch):
    """The clock, which is stopped after the test."""
    yield card_time
    card_time.stop()


def test_small_operators_take_as_long_as_their_launches(torch, clock):
    x = torch.ones(4, device="hpu")
    clock.start()
    for _ in range(100):
        x = x + 1
    reading = clock.read()
    assert reading.launches == 100
    assert reading.card == pytest.approx(100 * LAUNCH, rel=0.01)
    assert reading.busy["launch"] == pytest.approx(100 * LAUNCH)
    assert reading.idle == 0


def test_host_runs_ahead_until_it_reads_a_value(torch, clock):
    x = torch.ones(2048, 2048, device="hpu")
    clock.start()
    y = x @ x
    ahead = clock.read()
    y.sum().item()
    joined = clock.read()
    assert ahead.host == pytest.approx(LAUNCH)
    assert ahead.card > 5 * LAUNCH
    assert joined.host == joined.card
    assert (ahead.waits, joined.waits) == (0, 1)


@pytest.mark.parametrize("how", ["torch.hpu.synchronize()", "event.synchronize()", "y.cpu()"])
def test_host_waits_for_the_card(torch, clock, how):
    x = torch.ones(1024, 1024, device="hpu")
    clock.start()
    y = x @ x
    event = torch.hpu.Event()
    event.record()
    exec(how, {"torch": torch, "event": event, "y": y})
    reading = clock.read()
    assert reading.host == reading.card > 0


@pytest.mark.parametrize(
    "how",
    [
        *("x.nonzero()", "x[x > 0]", "x.masked_select(x > 0)", "x.unique()", "x.equal(x + 1)"),
        *("torch.repeat_interleave(x.long())", "x.long().bincount()"),
    ],
)
def test_host_waits_for_sizes_and_results_that_depend_on_values(torch, clock, how):
    x = torch.ones(2048, 2048, device="hpu")
    clock.start()
    eval(how, {"torch": torch, "x": (x @ x)[0]})
    reading = clock.read()
    assert reading.host == reading.card > 5 * LAUNCH
    assert reading.waits == 1


def test_host_does_not_wait_for_sizes_that_it_can_compute(torch, clock):
    x, rows = torch.ones(2048, 2048, device="hpu"), torch.arange(3, device="hpu")
    mask = torch.arange(2048) < 5
    clock.start()
    y = x @ x
    y[rows], y[mask], y[0, :3].repeat_interleave(rows, output_size=3)
    reading = clock.read()
    assert reading.host < reading.card
    assert reading.waits == 0


def test_measured_host_leaves_the_card_idle(torch, clock):
    x = torch.ones(4, device="hpu")
    clock.start("measured")
    x + 1
    time.sleep(0.05)
    x + 1
    torch.hpu.synchronize()
    reading = clock.read()
    assert 0.05 <= reading.idle <= reading.host
    clock.start("ideal")
    x + 1
    time.sleep(0.05)
    x + 1
    assert clock.read().idle == 0


def test_measured_host_does_not_include_simulated_kernels(torch, clock):
    x = torch.ones(1500, 1500, device="hpu")
    x @ x
    clock.start("measured")
    before = time.perf_counter()
    for _ in range(5):
        x @ x
    kernels = time.perf_counter() - before
    assert clock.read().host < kernels / 2


def test_reading_includes_the_time_since_the_last_operator(torch, clock):
    x = torch.ones(4, device="hpu")
    clock.start("measured")
    x + 1
    time.sleep(0.05)
    assert 0.05 <= clock.read().host < 0.1
    time.sleep(0.05)
    clock.stop()
    stopped = clock.read().host
    time.sleep(0.05)
    assert clock.read().host == stopped >= 0.1


def test_events_measure_the_time_on_the_card(torch, clock):
    x = torch.ones(1024, 1024, device="hpu")
    clock.start()
    first, last = (torch.hpu.Event(enable_timing=True) for _ in range(2))
    first.record()
    x @ x
    last.record()
    assert first.elapsed_time(last) == pytest.approx(clock.read().card * 1e3)


def test_time_between_events_of_different_clocks_is_refused(torch, clock):
    before, first, second, after = (torch.hpu.Event(enable_timing=True) for _ in range(4))
    before.record()
    clock.start()
    torch.ones(1024, 1024, device="hpu")
    first.record()
    clock.start()
    second.record()
    clock.stop()
    after.record()
    for one, other in ((before, first), (first, second), (second, after)):
        with pytest.raises(RuntimeError, match="was started or stopped between these two events"):
            one.elapsed_time(other)
    assert before.elapsed_time(after) > 0


def test_host_does_not_wait_for_events_of_an_earlier_clock(torch, clock):
    clock.start()
    torch.ones(1024, 1024, device="hpu")
    event = torch.hpu.Event()
    event.record()
    clock.start()
    event.synchronize()
    assert clock.read().host == 0


def test_records_list_operators_as_pytorch_calls_them(torch, clock):
    x = torch.ones(8, 8, device="hpu")
    clock.start(records=True)
    y = torch.nn.functional.linear(x, x, x[0]).clone()
    y.view(-1).add_(1)
    records = clock.take_records()
    assert [record.name for record in records] == [
        "aten::addmm",
        "aten::clone",
        "aten::add_.Tensor",
    ]
    assert all(record.launching == pytest.approx(LAUNCH) for record in records)
    starts = [record.start for record in records]
    assert starts == sorted(starts)
    assert clock.take_records() == []


def test_trace_has_a_track_for_the_host_and_each_part_of_the_card(torch, clock, tmp_path):
    x = torch.ones(1024, 1024, device="hpu")
    clock.start(records=True)
    (x @ x).cpu()
    clock.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    spans = {(each["name"], names[each["tid"]]): each for each in events if each["ph"] == "X"}
    product, copy = (
        {part: span for (name, part), span in spans.items() if name == wanted}
        for wanted in ("aten::mm", "aten::_to_copy")
    )
    assert product.keys() == {"host", "matrix", "memory", "launch"}
    assert {"host", "memory", "links", "launch"} <= copy.keys()
    assert (product["host"]["ts"], copy["host"]["ts"]) == pytest.approx((0.0, LAUNCH * 1e6))
    assert product["matrix"]["ts"] == pytest.approx(LAUNCH * 1e6)
    last = copy["links"]
    assert last["ts"] + last["dur"] == pytest.approx(clock.read().card * 1e6)


def test_casts_by_autocast_and_copies_by_autograd_are_operators(torch, clock):
    x = torch.ones(8, 8, device="hpu", requires_grad=True)
    y, narrow = x * 1, x.detach().bfloat16()
    clock.start(records=True)
    with torch.autocast("hpu", dtype=torch.bfloat16):
        torch.mm(x, narrow)
    y.mul_(y.detach() + 1).mul_(x)
    names = [record.name for record in clock.take_records()]
    casts = ["aten::_to_copy", "aten::mm"]
    assert names == [
        *casts,
        "aten::add.Tensor",
        "aten::mul_.Tensor",
        "aten::clone",
        "aten::mul_.Tensor",
    ]


def test_fallback_takes_the_time_of_its_copies(torch, clock):
    clock.start()
    first, second = (torch.ones(1 << 20, device="hpu") for _ in range(2))
    before = clock.read()
    torch.special.zeta(first, second)
    after = clock.read()
    copied = 3 * first.nbytes / generation_named("gaudi2").host_bandwidth
    assert after.busy["links"] - before.busy["links"] == pytest.approx(copied)
    assert after.end - before.end > copied
    assert after.launches - before.launches == 1


def test_failed_operators_take_no_time(torch, clock):
    x = torch.ones(4, 4, device="hpu")
    clock.start()
    with pytest.raises(RuntimeError, match="shape"):
        x @ torch.ones(3, 4, device="hpu")
    assert set(clock.read().unpriced) == set()
    assert clock.read().busy["matrix"] == 0


def test_work_without_a_price_is_counted(torch, clock, monkeypatch):
    clock.start()
    native = engine.load()

    def fail(*_):
        raise ValueError("no price")

    native.forget_prices()
    native.set_price_sources(fail, fail)
    try:
        torch.ones(3, device="hpu").neg().neg()
        reading = clock.read()
        assert reading.card == 0
        assert reading.unpriced == {"aten::ones": 1, "aten::neg": 2}
        assert "no price" in clock.price_error()
    finally:
        native.set_price_sources(card_time._source, card_time._links)
        native.forget_prices()


def test_stopped_clock_stands_still(torch, clock):
    x = torch.ones(4, device="hpu")
    clock.start()
    x + 1
    clock.stop()
    before = clock.read()
    (x + 1).sum().item()
    assert clock.read() == before
    assert before.band == (pytest.approx(1 / before.band[1]), before.band[1])


def test_compiled_code_is_priced_as_graphs(torch, clock, compile_on_hpu):
    def small_operators(x):
        for _ in range(10):
            x = (x * 2).sin()
        return x

    x = torch.ones(16, device="hpu")
    compiled = compile_on_hpu(small_operators)
    compiled(x)
    clock.start()
    compiled(x)
    in_graph = clock.read()
    assert in_graph.launches == 1
    assert in_graph.compilation > 0
    clock.start()
    small_operators(x)
    assert clock.read().card > 5 * in_graph.card


def test_each_run_of_compiled_code_takes_as_long_as_its_graph(torch, clock, compile_on_hpu):
    compiled = compile_on_hpu(lambda x: (x @ x).sin().sum(), dynamic=True)
    small, large = (torch.ones(size, size, device="hpu") for size in (64, 1024))
    times = {}
    for x in (small, large, small, small, large, large):
        clock.start()
        compiled(x)
        times.setdefault(len(x), []).append(clock.read().card)
        assert clock.read().launches == 1
    assert times[64] == [pytest.approx(times[64][0])] * 3
    assert times[1024] == [pytest.approx(times[1024][0])] * 3
    assert times[1024][0] > 1.5 * times[64][0]


def test_compiled_code_whose_sizes_depend_on_values_is_priced_each_time(
    torch, clock, compile_on_hpu
):
    compiled = compile_on_hpu(lambda x: torch.nonzero(x).float().mm(torch.ones(2, 64).to(x)).sin())
    few, many = torch.zeros(2048, 512), torch.ones(2048, 512)
    few[0, 0] = 1.0
    times = []
    for x in (few, many, few, many):
        x = x.to("hpu")
        torch.hpu.synchronize()
        clock.start()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            compiled(x)
        times.append(clock.read().card)
    assert times[1] > 2 * times[0]
    assert times[2:] == pytest.approx(times[:2])


def test_compiled_code_that_copies_to_the_host_waits_each_time(torch, clock, compile_on_hpu):
    compiled = compile_on_hpu(lambda x: (x @ x).cpu() + 1)
    x = torch.ones(1024, 1024, device="hpu")
    readings = []
    for _ in range(3):
        clock.start()
        compiled(x)
        readings.append(clock.read())
    assert [(each.waits, each.launches) for each in readings] == [(1, 2)] * 3
    assert readings[1] == readings[2]


def test_profiler_sees_the_operators_of_compiled_code(torch, clock, compile_on_hpu):
    compiled = compile_on_hpu(lambda x: (x @ x).sin())
    x = torch.ones(64, 64, device="hpu")
    clock.start()
    compiled(x)
    with torch.profiler.profile() as profile:
        compiled(x)
    assert "aten::mm" in {event.key for event in profile.key_averages()}


def test_clock_does_not_read_symbolic_sizes(torch, clock, compile_on_hpu):
    compiled = compile_on_hpu(lambda x: (x * 2).sum(0), dynamic=True)
    clock.start()
    for rows in (3, 4, 5):
        x = torch.ones(rows, 2, device="hpu")
        torch._dynamo.mark_dynamic(x, 0)  # raises an error if the trace depends on the size
        assert compiled(x).tolist() == [2.0 * rows] * 2


def test_variable_starts_the_clock(forked_script):
    code = """
import torch
from hpu_magic.simulator import card_time
x = torch.ones(4, device="hpu")
torch.hpu.synchronize()
print(card_time.read().card > 0, card_time.is_on())
"""
    printed = forked_script(code, simulated=True, HPU_MAGIC_CARD_TIME="1")
    assert printed.split()[-2:] == ["True", "True"]
    assert "False" in forked_script(
        "from hpu_magic.simulator import card_time; import torch; print(card_time.is_on())",
        simulated=True,
    )


def test_clock_starts_before_torch_is_imported(forked_script):
    code = """
from hpu_magic.simulator import card_time
card_time.start()
import torch
x = torch.ones(4, device="hpu")
print(card_time.read().card > 0)
"""
    assert "True" in forked_script(
        code, simulated=True, hides_torch=True, TORCH_DEVICE_BACKEND_AUTOLOAD="1"
    )


def test_unknown_hosts_are_rejected(torch, monkeypatch):
    with pytest.raises(ValueError, match="host is 'fast'; use one of 'ideal', 'measured'"):
        card_time.start("fast")
    monkeypatch.setenv("HPU_MAGIC_CARD_TIME", "yes")
    with pytest.raises(ValueError, match="HPU_MAGIC_CARD_TIME='yes' is not valid; use 1"):
        card_time.start_if_requested()


LAZY = """
from hpu_magic.simulator import card_time
x = torch.ones(16, device="hpu")
htcore.mark_step()

def step():
    y = x
    for _ in range(10):
        y = (y * 2).sin()
    htcore.mark_step()
    return y
"""


def test_lazy_mode_prices_each_graph_once(lazy_process):
    lines = lazy_process(
        LAZY
        + """
card_time.start()
step()
first = card_time.read()
step()
second = card_time.read()
card_time.stop()
print(first.launches, second.launches)
print(first.compilation > 0, first.compilation == second.compilation)
print(abs(second.card - 2 * first.card) < 1e-9)
"""
    )
    assert lines == ["1 2", "True True", "True"]


def test_graph_is_divided_among_the_labels_of_its_launch(lazy_process):
    """The price of a graph is known after the first launch, whose labels must not be kept."""
    lines = lazy_process(
        """
from hpu_magic.simulator import card_time, engine
native = engine.load()
x = torch.ones(256, 256, device="hpu")
htcore.mark_step()
card_time.start(records=True)
for product, sums in ((1, 2), (3, 2), (3, 3)):
    native.set_label(product)
    y = x @ x
    native.set_label(sums)
    y = (y + torch.ones(256).to("hpu")).sum()
    native.set_label(4)
    htcore.mark_step()
for record in card_time.take_records():
    labels = [label for label, _ in record.shares]
    total = sum(sum(seconds.values()) for _, seconds in record.shares)
    copied = [label for label, seconds in record.shares if seconds["links"]]
    print(record.label, labels, copied, abs(total / record.seconds - 1) < 1e-9)
card_time.stop()
"""
    )
    assert lines == ["4 [1, 2, 2] [2] True", "4 [3, 2, 2] [2] True", "4 [3, 3] [3] True"]


def test_measured_host_does_not_include_graphs_that_run_here(lazy_process):
    lines = lazy_process(
        """
import time
from hpu_magic.simulator import card_time
x = torch.ones(1500, 1500, device="hpu")
y = x @ x
htcore.mark_step()
card_time.start("measured")
before = time.perf_counter()
for _ in range(5):
    y = x @ x
    htcore.mark_step()
here = time.perf_counter() - before
print(card_time.read().host < here / 2)
card_time.stop()
"""
    )
    assert lines == ["True"]


def test_replay_takes_as_long_as_its_graph(lazy_process):
    lines = lazy_process(
        LAZY
        + """
card_time.start()
graph = torch.hpu.HPUGraph()
graph.capture_begin()
step()
graph.capture_end()
captured = card_time.read()
graph.replay()
graph.replay()
after = card_time.read()
print(after.launches - captured.launches, round(after.card / captured.card, 9))
card_time.stop()
card_time.start()
other = torch.hpu.HPUGraph()
card_time.stop()
other.capture_begin()
step()
other.capture_end()
card_time.start()
other.replay()
print(card_time.read().unpriced)
card_time.stop()
"""
    )
    assert lines[0].split() == ["2", "3.0"]
    assert lines[1] == "{'HPU Graph that was captured while the clock was off': 1}"
