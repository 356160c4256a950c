"""Test the time of a step in a dry run: phases, modules, throughput and advice."""

import json
import re
import textwrap

import pytest

from hpu_magic import units
from hpu_magic.dry_runs.picture import picture
from hpu_magic.dry_runs.request import Request
from hpu_magic.dry_runs.run import dry_run
from hpu_magic.simulator.dry_run.transfers import Spans

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(2048, 2048, bias=False)
        self.layers = nn.Sequential(nn.Linear(2048, 64, bias=False), nn.ReLU())

    def forward(self, x):
        return self.layers(self.wide(x))
"""

LOOP = (
    MODEL
    + """
model = Net().to("hpu", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(20):
    x = torch.ones(512, 2048, dtype=torch.bfloat16).to("hpu")
    model(x).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
)

COMPILED = LOOP.replace("for step", 'model = torch.compile(model, backend="hpu_backend")\nfor step')

COMPILED_UPDATE = COMPILED.replace(
    "for step", 'update = torch.compile(optimizer.step, backend="hpu_backend")\nfor step'
).replace("    optimizer.step()", "    update()")

MARKED = f"{LOOP}    torch.hpu.synchronize()\n"
LAZY = (("PT_HPU_LAZY_MODE", "1"),)

LOADED = """
import os, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Text(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(float(os.environ.get("SLOW", "0")))
        return {"input_ids": torch.zeros(32, dtype=torch.long), "label": 1}

model = nn.Embedding(100, 8, device="hpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Text(), batch_size=4):
    model(batch["input_ids"].to("hpu")).sum().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Run code in a dry run and return the result; identical runs are cached."""
    results = {}

    def run(code, environment=(), **options):
        key = code, environment, *options.items()
        if key not in results:
            script = tmp_path_factory.mktemp("script") / "train.py"
            script.write_text(textwrap.dedent(code))
            with pytest.MonkeyPatch.context() as patch:
                for name, value in environment:
                    patch.setenv(name, value)
                results[key] = dry_run(Request(str(script), **options))
        return results[key]

    return run


def parts(time):
    """Return the time of each module in seconds, by path."""
    return {path: module.seconds for path, module in time.modules.walk()}


def test_phases_and_modules_add_up_to_the_step(timed):
    time = timed(LOOP).time
    assert set(time.phases) == {"data", "forward", "backward", "optimizer", "other"}
    for total in (time.phases.values(), time.limits.values()):
        assert sum(total) == pytest.approx(time.seconds, rel=0.02)
    assert time.modules.seconds == pytest.approx(time.seconds, rel=0.02)
    assert time.phases["data"] >= 512 * 2048 * 2 / 32e9
    assert time.phases["backward"] > time.phases["forward"]


FALLBACKS = f"{MARKED}    torch.renorm(x, 2, 0, 1.0)\n"


@pytest.mark.parametrize("environment", [(), LAZY])
def test_copies_of_fallbacks_are_a_separate_phase(timed, environment):
    usual = timed(MARKED, environment).time
    time = timed(FALLBACKS, environment).time
    assert time.phases["fallbacks"] >= 2 * 512 * 2048 * 2 / 32e9
    assert time.phases["data"] == pytest.approx(usual.phases["data"], rel=0.01)
    assert "copies of CPU fallbacks" in parts(time)


def test_time_of_a_module_includes_its_backward_pass(timed):
    forward = parts(timed(MODEL + _forward("Net()")).time)
    both = parts(timed(LOOP).time)
    assert both["Net.wide"] > 1.6 * forward["Net.wide"] > 0
    assert both["Net"] >= both["Net.layers"] >= both["Net.layers.0"] > both["Net.layers.1"] > 0
    assert "slowest: Net.wide" in str(timed(LOOP))


def _forward(model):
    return f"""
model = {model}.to("hpu", torch.bfloat16)
with torch.no_grad():
    model(torch.ones(512, 2048, dtype=torch.bfloat16, device="hpu"))
"""


def test_script_without_optimizer_has_the_time_of_the_run(timed):
    result = timed(MODEL + _forward("Net()"))
    assert result.time.whole_run
    assert result.step_seconds is None
    assert "time of the run" in str(result)


BY_HAND = """
import torch
from torch.utils.checkpoint import checkpoint

layers = [torch.nn.Linear(64, 64, device="hpu") for _ in range(2)]
for _ in range(100):
    x = torch.ones(8, 64, device="hpu", requires_grad=True)
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=True)  # starts a backward pass in another
    x.sum().backward()
    with torch.no_grad():
        for layer in layers:
            layer.weight -= 0.1 * layer.weight.grad
            layer.weight.grad = None
"""


def test_backward_passes_end_the_steps_of_a_script_without_optimizer(timed):
    result = timed(BY_HAND)
    assert (result.status, result.optimizer, result.cycle) == (0, "", 1)
    assert 3 <= result.steps <= 5
    assert result.step_seconds > 0
    assert "backward passes end steps" in str(result)
    assert timed(BY_HAND, steps=2).steps == 2


@pytest.mark.parametrize("lazy", ["0", "1"])
def test_optimizer_that_is_created_after_a_backward_pass_ends_the_steps(timed, lazy):
    script = """
        import torch
        model, optimizer = torch.nn.Linear(64, 64, device="hpu"), None
        for step in range(100):
            loss = model(torch.ones(8, 64, device="hpu")).sum()
            loss.backward()
            optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
            loss.item()
            optimizer.step()
            optimizer.zero_grad()
    """
    mode = (("PT_HPU_LAZY_MODE", lazy),)
    result = timed(script, mode, steps=3)
    assert (result.status, result.steps, result.optimizer) == (0, 3, "SGD")
    [line] = result.host_reads
    assert line.count == 3
    assert timed(script, mode).cycle == 1


def test_share_of_the_peak(timed):
    time = timed(LOOP, card="gaudi2").time
    # The first layer needs no gradient of its input.
    flops = 2 * 512 * (2 * 2048 * 2048 + 3 * 2048 * 64)
    assert time.share_of_peak == pytest.approx(flops / 432e12 / time.seconds, rel=0.15)


def test_samples_and_tokens_of_a_loader(timed):
    result = timed(LOADED)
    time = result.time
    assert (time.data.samples, time.data.tokens, time.data.batches) == (4, 128, 1)
    assert time.samples_per_second == pytest.approx(4 / time.seconds)
    assert "4 per step, from the batch size of the DataLoader" in str(result)
    assert time.epoch_steps == 100
    assert "an epoch (100 steps)" in str(result)
    assert "The last batch" not in str(result)


def test_last_batch_of_an_epoch_is_counted_and_reported(timed):
    result = timed(LOADED.replace("400", "398"))
    assert result.time.epoch_steps == 100
    assert "The last batch of an epoch has only 2 samples" in str(result)


def test_loader_of_an_evaluation_after_the_steps_is_not_counted(timed):
    evaluation = """
for batch in torch.utils.data.DataLoader(Text(), batch_size=3):
    pass
"""
    result = timed(LOADED.replace("400", "10") + evaluation)
    assert (result.status, result.steps) == (0, 3)
    assert result.time.epoch_steps == 3
    assert "The last batch of an epoch has only 2 samples" in str(result)


def test_own_class_of_batches_is_not_inspected(timed):
    own = """
class Own(torch.utils.data.BatchSampler):
    def __init__(self):
        self.batch_size, self.drop_last = 4, False
    def __iter__(self):
        return iter([[0, 1, 2, 3]] * 20)
    def __len__(self):
        return 20
"""
    code = LOADED.replace("model = nn", f"{own}\nmodel = nn")
    result = timed(code.replace("batch_size=4", "batch_sampler=Own()"))
    assert result.error is None
    assert result.time.epoch_steps == 20


def test_samples_of_a_script_without_loader(timed):
    result = timed(LOOP)
    assert (result.time.data.samples, result.time.data.tokens) == (512, 0)
    assert "512 per step, from the leading dimension of the inputs of Net" in str(result)


def test_slow_loader_is_reported_with_advice(timed):
    result = timed(LOADED, (("SLOW", "0.02"),))
    assert result.time.data.waited >= 4 * 0.02
    gains = {each.title: each.gain for each in result.advice}
    assert gains["Load batches in worker processes, in pinned memory"] is None
    assert "num_workers=4" in str(result)


def test_measured_host_includes_the_loader(timed):
    slow = (("SLOW", "0.02"),)
    ideal, measured = timed(LOADED, slow).time, timed(LOADED, slow, host="measured").time
    assert ideal.seconds < 4 * 0.02 < measured.seconds
    assert (ideal.host_is_measured, measured.host_is_measured) == (False, True)


def test_launches_limit_small_models(timed):
    result = timed(LOADED)
    assert max(result.time.limits, key=result.time.limits.get) in ("launches", "waiting")
    [compiled] = [each for each in result.advice if each.title == "Compile the model"]
    passes = result.time.phases["forward"] + result.time.phases["backward"]
    assert 1.2 < compiled.gain.factor <= 1 / (1 - passes / result.time.seconds) + 1e-9
    assert 'backend="hpu_backend"' in str(result)


def test_float32_matrices_limit_the_step(timed):
    code = LOOP.replace('dtype=torch.bfloat16).to("hpu")', 'device="hpu")')
    result = timed(code.replace("torch.bfloat16", "torch.float32").replace("512", "16384"))
    assert result.time.in_float32
    assert max(result.time.limits, key=result.time.limits.get) == "matrix"
    assert "Use mixed precision with bfloat16" in [each.title for each in result.advice]


def test_compiled_code_has_phases(timed):
    time = timed(COMPILED).time
    assert time.phases["backward"] > time.phases["forward"] > 0
    assert parts(time)["Net"] > 0


def test_compiled_step_of_an_optimizer_is_a_graph(timed):
    result = timed(COMPILED_UPDATE)
    assert result.steps > 1
    assert 0 < result.time.phases["optimizer"] < timed(COMPILED).time.phases["optimizer"] / 2


def test_graphs_of_lazy_mode_are_divided_among_phases_and_modules(timed):
    result = timed(MARKED, LAZY)
    time = result.time
    assert set(time.phases) == {"data", "forward", "backward", "optimizer", "other"}
    for total in (time.phases.values(), time.limits.values()):
        assert sum(total) == pytest.approx(time.seconds, rel=1e-3)
    assert time.modules.seconds == pytest.approx(time.seconds, rel=1e-3)
    assert time.phases["data"] >= 512 * 2048 * 2 / 32e9
    assert time.phases["backward"] > time.phases["forward"]
    assert "slowest: Net.wide" in str(result)


def test_lazy_mode_without_mark_step_runs_nothing(timed, capfd):
    result = timed(LOOP, LAZY)
    assert (result.time, result.graphs, result.error) == (None, 0, None)
    assert (
        "ran none of them: call habana_frameworks.torch.core.mark_step()" in capfd.readouterr().err
    )


def test_lazy_mode_divides_a_step_like_eager_mode(timed):
    # The products of large matrices take about the same time in both modes; graphs fuse the rest.
    code = MARKED.replace("512", "16384")
    eager, lazy = timed(code).time, timed(code, LAZY).time
    for phase in ("forward", "backward"):
        assert 0.6 * eager.phases[phase] < lazy.phases[phase] <= eager.phases[phase]
    assert parts(lazy)["Net.wide"] == pytest.approx(parts(eager)["Net.wide"], rel=0.1)


TWINS = """
import torch
import habana_frameworks.torch as ht
from torch import nn

class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1024, 1024)
        self.second = nn.Linear(1024, 1024)

    def forward(self, x):
        for module in (self.first, self.second, self.second):
            x = module(x)
            ht.core.mark_step()
        return x

model = Twins().to("hpu", torch.bfloat16)
with torch.no_grad():
    x = torch.ones(512, 1024, dtype=torch.bfloat16, device="hpu")
    ht.core.mark_step()
    model(x)
"""


def test_equal_graphs_belong_to_the_modules_that_recorded_them(timed):
    time = timed(TWINS, LAZY).time
    each = parts(time)
    assert each["Twins.second"] == pytest.approx(2 * each["Twins.first"])
    assert each["Twins.first"] > 0
    assert each["Twins"] == pytest.approx(3 * each["Twins.first"])


def test_replays_belong_to_the_module_that_starts_them(timed):
    captured = TWINS.replace("ht.core.mark_step()\n        return", "pass\n        return")
    captured = captured.replace(
        "    model(x)", "    model.second = ht.hpu.wrap_in_hpu_graph(model.second)\n    model(x)"
    )
    each = parts(timed(captured, LAZY).time)
    assert each["Twins.second"] > each["Twins.first"] > 0


def test_result_with_time_is_serializable(timed):
    found = json.loads(json.dumps(timed(LOOP).to_dict()))
    assert found["time"]["data"]["samples"] == 512
    assert found["time"]["phases"]["forward"] > 0


def test_picture_shows_memory_and_phases(timed):
    html = timed(LOOP)._repr_html_()
    for label in ("optimizer state: 16.5 MiB", "memory of a card at the peak", "forward: "):
        assert label in html
    assert html.count("<svg") == 2
    assert "By module (estimate)" in html


def test_picture_shows_the_memory_of_the_last_step(timed):
    result = timed(LOOP)
    assert max(result.memory_course) == result.peak
    assert len(set(result.memory_course)) > 10
    html = result._repr_html_()
    assert "memory of a card during the last step" in html
    assert f">peak: {units.size(result.peak)}<" in html


def test_picture_of_a_full_card_marks_its_limit():
    image = picture({"parameters": 60}, limit=80, needed=100, phases=None)
    rectangles = [float(width) for width in re.findall(r'width="([\d.]+)"', image)]
    assert 0.6 * 760 in rectangles
    assert 'x1="607.0"' in image
    assert "time of" not in image


def test_time_with_collectives_is_counted_once():
    spans = ((start, start + 2) for start in (1.0, 2.0, 6.0))
    transfers = Spans(spans)  # the union is 1 to 4 and 6 to 8
    intervals = [(0, 10), (0, 1), (3, 7), (4, 6), (7, 7.5), (8, 9)]
    assert [transfers.during(*each) for each in intervals] == [5, 0, 2, 0, 0.5, 0]


def test_script_that_fails_before_its_first_step_has_no_time(timed):
    result = timed(f"{MODEL}{_forward('Net()')}\nraise ValueError(3)")
    assert "ValueError: 3" in result.error
    assert (result.time, result.advice) == (None, None)


def test_requested_steps_are_extrapolated(timed):
    result = timed(LOOP, steps=1000)
    assert result.steps < 10
    assert result.stopped
    assert "1,000 steps" in str(result)
    assert result.time.duration(1000).startswith(units.duration(1000 * result.time.seconds))


def test_trace_contains_one_step(timed, tmp_path):
    result = timed(LOOP, trace=str(tmp_path / "trace.json"))
    spans = [
        each
        for each in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        if each["ph"] == "X" and each["tid"] > 0  # the host launches before the card starts
    ]
    seconds = max(each["ts"] + each["dur"] for each in spans) - min(each["ts"] for each in spans)
    assert seconds / 1e6 == pytest.approx(result.time.seconds, rel=0.1)
    assert "aten::_to_copy" in {each["name"].removesuffix(".default") for each in spans}
