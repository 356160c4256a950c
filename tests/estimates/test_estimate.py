"""Test `hpu_magic.estimate` and `%hpu_estimate`."""

import copy
import pickle
import re

import pytest
import torch

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.estimate import estimate
from hpu_magic.estimates.pictures import memory_picture
from hpu_magic.estimates.tracing.program import Phase

nn = torch.nn


def layers(width=256, count=3, device="cpu"):
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(count))
    ).to(device)


X = torch.empty(32, 256, device="meta")


def test_figures_are_consistent():
    found = estimate(layers(), X, accumulate=2)
    weights = 4 * sum(each.numel() for each in layers().parameters())
    assert found.samples_per_second == pytest.approx(2 * 32 / found.seconds)
    assert found.tokens_per_second == 0.0
    assert found.peak == max(found.memory_curve) == sum(found.memory.values())
    assert (found.memory["weights"], found.memory["optimizer"]) == (weights, 2 * weights)
    assert len(found.prices.operations) == len(found.program.operations)
    assert found.seconds == pytest.approx(sum(found.prices.by_kind.values()))
    low, high = found.band
    assert 0 < low < 1 < high


def test_several_cards_share_a_step():
    one = estimate(layers(), X)
    eight = {how: estimate(layers(), X, cards=8, parallel=how) for how in ("ddp", "zero3")}
    for how, found in eight.items():
        assert found.samples_per_second == pytest.approx(8 * 32 / found.seconds), how
        assert found.seconds > one.seconds
    weights = {
        how: (found.memory["weights"], found.memory["optimizer"]) for how, found in eight.items()
    }
    assert weights["ddp"] == (one.memory["weights"], one.memory["optimizer"])
    assert weights["zero3"] == tuple(count / 8 for count in weights["ddp"])
    layer = weights["ddp"][0] // 3  # two gathered layers, and one layer's gradients
    held = {how: found.memory["buffers of collectives"] for how, found in eight.items()}
    assert held == {"ddp": weights["ddp"][0], "zero3": 3 * layer}


@pytest.mark.parametrize(
    ("parallel", "times"), [("zero1", 3 * 4), ("zero3", 3 * 4), ("fsdp", 2 * 2)]
)
def test_zero_steps_float32_copies_of_weights(parallel, times):
    model = layers().bfloat16()
    found = estimate(model, X, cards=8, parallel=parallel)
    count = sum(each.numel() for each in model.parameters())
    # The optimizer also has step counters.
    assert found.memory["optimizer"] == pytest.approx(times * count / 8, rel=1e-3)
    none = estimate(model, X, cards=8, parallel=parallel, optimizer=None)
    assert "optimizer" not in none.memory


def test_tensor_parallel_cards_share_activations():
    wide = nn.Sequential(
        nn.Linear(256, 4096, bias=False), nn.ReLU(), nn.Linear(4096, 256, bias=False)
    )
    one, four = (
        estimate(wide, X, train=False, cards=cards, parallel=how, mode="eager")
        for cards, how in ((1, None), (4, "tp=4"))
    )
    assert four.memory["weights"] == one.memory["weights"] / 4
    assert four.memory["temporary results"] == one.memory["temporary results"] / 4


def test_modules_add_up_to_the_model_and_its_operations():
    found = estimate(layers(), X)
    operations = sum(each.seconds for each in found.prices.operations)
    inner = sum(part.seconds for part in found.modules.parts.values())
    own = sum(
        cost.seconds
        for operation, cost in zip(found.program.operations, found.prices.operations, strict=True)
        if not operation.module and operation.phase is not Phase.OPTIMIZER
    )
    assert found.modules.seconds == pytest.approx(operations)
    assert found.modules.seconds == pytest.approx(inner + own)


def test_optimizer_is_listed_next_to_the_modules():
    found = estimate(layers(), X)
    (optimizer,) = (part for part in found.modules.parts.values() if part.kind == "adamw")
    assert optimizer.name == "the optimizer"
    assert optimizer.seconds == pytest.approx(
        sum(
            cost.seconds
            for operation, cost in zip(
                found.program.operations, found.prices.operations, strict=True
            )
            if operation.phase is Phase.OPTIMIZER
        )
    )
    assert "slowest: the optimizer" in str(found)
    assert "the optimizer" not in estimate(layers(), X, train=False).modules.parts


def test_largest_batch_fits_and_the_next_does_not():
    # Large weights leave little memory for the batch.
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(65536, 65536, bias=False), nn.ReLU())
        x = torch.empty(1, 65536)
    options = {"optimizer": "sgd", "card": "gaudi3"}
    found = estimate(model, x, batch="largest", **options)
    assert found.fits
    assert found.batch == found.largest_batch > 1000
    assert not estimate(model, x, batch=found.batch + 1, **options).fits
    assert estimate(model, x, **options).largest_batch == found.batch


def test_warning_suggests_changes_that_fit():
    with torch.device("meta"):
        model = nn.Linear(2**18, 2**17)
        x = torch.empty(1, 2**18)
    found = estimate(model, x)
    assert not found.fits
    (warning,) = found.warnings()
    assert re.fullmatch(
        r"The step needs 6\d\d GiB more memory than a card has: use a smaller batch, .*\.", warning
    )
    assert found.largest_batch == 0
    with pytest.raises(EstimateError, match=r"A batch of 1 needs 7\d\d / 94\.6 GiB \(estimate\)"):
        estimate(model, x, batch="largest")


def test_recomputing_layers_trades_memory_for_time():
    x = torch.empty(4096, 256, device="meta")
    kept, again = (estimate(layers(count=8), x, checkpointing=how) for how in ("none", "full"))
    assert again.peak < kept.peak
    assert again.seconds > kept.seconds
    assert again.memory["weights"] == kept.memory["weights"]


def test_layers_of_all_parts_are_recomputed():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = layers(count=6), layers(count=8)

        def forward(self, x):
            return self.decoder(self.encoder(x))

    x = torch.empty(4096, 256, device="meta")
    kept, again = (
        estimate(Parts(), x, checkpointing=how, optimizer=None) for how in ("none", "full")
    )
    size = x.numel() * x.element_size()
    # A layer keeps the input and the result of its activation; with checkpointing, only the result.
    assert kept.memory["activations"] >= 26 * size
    assert again.memory["activations"] <= 14 * size


def test_fused_attention_replaces_that_of_pytorch():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(64, 64)

        def forward(self, x):
            x = self.project(x)
            return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.empty(4, 8, 1024, 64, dtype=torch.bfloat16, device="meta")
    model = Attention().bfloat16()
    found = {how: estimate(model, x, mode="lazy", attention=how) for how in ("torch", "fused")}
    assert found["fused"].seconds < found["torch"].seconds
    assert found["fused"].peak == found["torch"].peak
    assert "fused attention" in found["fused"].title()
    with pytest.raises(EstimateError, match="attention='flash' is not a valid choice"):
        estimate(model, x, attention="flash")


def test_each_time_is_shown_as_an_estimate_with_its_band():
    found = estimate(layers(), X)
    lines = str(found).splitlines()
    assert lines[0] == (
        "Estimate: training step of Sequential on gaudi2 (eager mode, fp32, batch 32, adamw)"
    )
    for line in lines:
        if re.search(r"\d (s|ms|µs|ns)\b|/s\b", line):
            assert re.search(r"\(estimate; .* to .*\)$", line), line
    page = found._repr_html_()
    assert page.count("<svg") == 2
    assert page.count("<details") == page.count("</details>") > 1
    assert "By module (estimate)" in page
    assert "<script" not in page


SURROUNDINGS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("hpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("around", SURROUNDINGS)
def test_contexts_of_the_caller_have_no_effect(around):
    model, alone = layers(), estimate(layers(), X)
    with SURROUNDINGS[around]():
        found = estimate(model, X)
    assert (found.memory, found.seconds) == (alone.memory, alone.seconds)


def test_float64_counts_as_float32():
    found = estimate(layers().double(), X.double())
    assert found.options.dtype == "fp32"
    assert found.memory == estimate(layers(), X).memory


def test_magic_shows_and_stores_an_estimate(run, shell):
    shell.push({"model": layers(), "x": X})
    cell = run("%hpu_estimate model --inputs x --card gaudi3 --no-train -o found")
    assert cell.error is None
    assert cell.result is shell.user_ns["found"]
    assert cell.result.title() == (
        "Estimate: forward pass of Sequential on gaudi3 (eager mode, fp32, batch 32)"
    )
    assert run("%hpu_estimate model --inputs x --batch 64").result.batch == 64


def test_magic_accepts_names_of_an_optimizer_and_a_loss(run, shell):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    shell.push({"model": model, "x": X, "o": optimizer, "f": lambda out: out.pow(2).mean()})
    cell = run("%hpu_estimate model --inputs x --optimizer o --loss f")
    assert cell.result.memory["optimizer"] == cell.result.memory["weights"]
    operators = {str(each.operator) for each in cell.result.program.operations}
    assert "aten.mean.default" in operators


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("model", "type %hpu_estimate model --inputs x,y"),
        (
            "model --inputs x --batch many",
            "needs a whole number or largest after --batch, not 'many'",
        ),
        ("model --inputs x --optimizer adamq", "optimizer='adamq' is not in torch.optim"),
        (
            "model --inputs x --cards 8 --parallel tp=3",
            "cards=8 is not divisible by tp=3: use cards=3",
        ),
        ("x --inputs x", "The model is a Tensor; pass a torch.nn.Module."),
    ],
)
def test_invalid_lines_of_the_magic_get_one_sentence(rejected, shell, line, sentence):
    shell.push({"model": layers(), "x": X})
    assert sentence in rejected(f"%hpu_estimate {line}")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"cards": "two"}, "cards='two' is not a number of cards"),
        ({"parallel": 2}, "parallel=2 is not a string: use ddp"),
        ({"optimizer": torch.optim.Adam}, "optimizer is a type: pass an optimizer, its name,"),
        ({"loss": torch.ones(3)}, "loss is a Tensor; pass a function of the model's output"),
        ({"loss": lambda output: 3}, "The loss is int, but must be a tensor with one element"),
        ({"loss": lambda output: output}, r"The loss is \(\d+, \d+\), but must be"),
        ({"parallel": "pp=64", "cards": 64}, "pp=64 .* Sequential has 3 layers in .*at most pp=3"),
        ({"parallel": "tp=7", "cards": 7}, "divisible by tp=7; .* 256 outputs: use a divisor"),
        ({"parallel": "zero3", "cards": 8, "train": False}, "zero3 is only supported for training"),
    ],
)
def test_wrong_type_or_unsuitable_layout_is_refused(shell, changed, sentence):
    with pytest.raises(EstimateError, match=sentence):
        estimate(layers(), X, **changed)


def test_heads_of_handwritten_attention_are_not_split():
    class Attention(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = (
                each.unflatten(-1, (6, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1)
            )
            scores = (q @ k.transpose(-1, -2)).softmax(-1)
            return self.out((scores @ v).transpose(1, 2).flatten(-2))

    for width in (24, 192):  # slices with a width of 24 are too narrow
        model, x = Attention(width), torch.empty(2, 16, width, device="meta")
        assert estimate(model, x, parallel="tp=3", cards=3).seconds > 0
        with pytest.raises(EstimateError, match="6 attention heads are not divisible by tp=4"):
            estimate(model, x, parallel="tp=4", cards=4)


def test_models_that_cannot_be_traced_are_refused(shell):
    with pytest.raises(EstimateError, match="pass the original module"):
        estimate(torch.jit.script(torch.nn.ReLU()), X)
    with pytest.raises(EstimateError, match="lazy layers without shapes; call it once"):
        estimate(torch.nn.LazyLinear(4), X)


def test_inputs_without_a_batch_dimension_are_one_sample(shell):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, factor):
            return self.weight * factor

    for empty in (torch.empty(0, 3), torch.empty(0, 3, dtype=torch.long)):
        with pytest.raises(EstimateError, match=r"The inputs of Scaled, .*, are empty"):
            estimate(Scaled(), empty, batch=4)
    one = estimate(Scaled(), 2.0)
    assert one.batch == 1
    assert one.samples_per_second == 1 / one.seconds
    for batch in (4, "largest"):
        with pytest.raises(EstimateError, match="The inputs have no batch dimension"):
            estimate(Scaled(), 2.0, batch=batch)


def test_manual_optimization_is_refused_with_a_fix(shell):
    class ByHand(nn.Linear):
        automatic_optimization = False

        def training_step(self, batch, _):
            self.optimizers().step()

    model = ByHand(256, 2)
    with pytest.raises(EstimateError, match=r"ByHand uses manual .* pass loss=, a function"):
        estimate(model, X)
    assert estimate(model, X, loss=lambda output: output.sum()).batch == 32


def test_estimate_is_pickled_without_its_model(shell):
    report = estimate(layers(), X, loss=lambda output: output.sum())
    assert copy.deepcopy(report) is report
    found = pickle.loads(pickle.dumps(report))
    assert repr(found) == repr(report)
    assert found._repr_html_() == report._repr_html_()
    assert found.program == report.program
    with pytest.raises(EstimateError, match=r"read largest_batch before copying"):
        _ = found.largest_batch
    largest = report.largest_batch
    assert pickle.loads(pickle.dumps(report)).largest_batch == largest
    assert len(pickle.dumps(report.__getstate__())) < 2**20


def test_compiled_model_is_estimated_as_its_original(shell):
    plain = estimate(layers(), X, mode="compile")
    assert repr(estimate(torch.compile(layers()), X)) == repr(plain)


def test_estimate_and_advice_use_the_mode_of_this_process(run, shell, forked_script):
    code = """
        import hpu_magic, torch
        model, x = torch.nn.Linear(8, 8), torch.ones(2, 8)
        print(hpu_magic.estimate(model, x).title())
        print(hpu_magic.advise(model, x).subject)
    """
    for lazy, mode in (("0", "eager"), ("1", "lazy")):
        printed = forked_script(code, simulated=True, PT_HPU_LAZY_MODE=lazy).splitlines()
        how = f"Linear on gaudi2 ({mode} mode, fp32, batch 2, adamw)"
        assert printed == [f"Estimate: training step of {how}", how]
    shell.push({"model": layers(), "x": X})
    for command in ("%hpu_estimate", "%hpu_advise"):
        assert "on gaudi2 (eager mode, fp32, " in run(f"{command} model --inputs x").out
        assert "on gaudi2 (lazy mode, " in run(f"{command} model --inputs x --mode lazy").out


def test_small_models_have_figures_with_units_and_names():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    found = estimate(model, torch.ones(32, 8))
    slowest = [label for label, _ in found.rows() if label.startswith("slowest: ")]
    possible = ("2 x Linear", "ReLU 1", "Sequential", "the optimizer")
    assert set(slowest) <= {f"slowest: {name}" for name in possible}
    assert len(slowest) >= 2
    picture = memory_picture(found.program, found.prices, found.card, found.memory_curve)
    assert "memory of a card over one step (estimate), KiB" in picture
    ticks = [float(tick) for tick in re.findall(r'text-anchor="end"[^>]*>([\d.e-]+)<', picture)]
    assert len(ticks) >= 3
    assert all(tick == 0 or 0.1 <= tick < 1024 for tick in ticks)


def test_estimate_after_torch_was_initialized_without_a_card(forked_script):
    code = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        model(torch.ones(2, 8)).sum().backward()
        import hpu_magic
        found = hpu_magic.estimate(model, torch.ones(2, 8))
        print(found.memory["weights"], found.seconds > 0, hasattr(torch, "hpu"))

        # The CPU has one operator for these layers, but a card uses matrix products.
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        for model in torch.nn.LSTM(8, 8), layer:
            found = hpu_magic.estimate(model, torch.ones(2, 3, 8), train=False)
            names = [each.operator._schema.name for each in found.program.operations]
            print(any("rnn" in each or "_fwd" in each for each in names), "aten::addmm" in names)
        print(torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled())
    """
    printed = forked_script(code)
    assert printed == "288 True False\nFalse True\nFalse True\nTrue True\n"
