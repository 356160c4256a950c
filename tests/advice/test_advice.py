"""Test `hpu_magic.advise`, `%hpu_advise` and the advice of a fit."""

import ast
import re
import threading
from dataclasses import replace

import pytest
import torch
from IPython.core.inputtransformer2 import TransformerManager

from hpu_magic.advice.advise import advise
from hpu_magic.advice.choices import choices, of_batch
from hpu_magic.advice.fused import fused_attention, fused_norms, plain_norms
from hpu_magic.errors import HPUError
from hpu_magic.estimates.estimate import estimate
from hpu_magic.estimates.tracing.fake_card import one_at_a_time
from hpu_magic.fits import fit
from hpu_magic.fits.result import FitResult
from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.measure.ledger_report import Entry, LedgerReport
from hpu_magic.runtime.training.observation import FitSettings, LoaderSettings, Observation

nn = torch.nn
X = torch.empty(4, 64, device="meta")
GIB = 2**30

FIT = Observation(
    device="hpu:0",
    mode="eager",
    settings=FitSettings(
        "32-true", 1, "AdamW", LoaderSettings(2, pinned=False, persistent=False), "lightning"
    ),
    epochs=4,
    training_seconds=100.0,
    waited_seconds=60.0,
    first_batches_seconds=20.0,
    counts=DeviceCounts(12, 30.0, {"aten::histc": 40}),
    later=DeviceCounts(7, 10.0, {"aten::histc": 37}),
    peak=12 * GIB,
    limit=96 * GIB,
    ledger=LedgerReport(
        entries=[
            Entry("cpu fallback", "aten::histc", "cell 3, line 7", count=40, seconds=4.0),
            Entry("host synchronization", "aten::item", "cell 3, line 9", count=500),
            Entry(
                "host synchronization", "aten::item", "fit.py, line 1", count=9, file=fit.__file__
            ),
            Entry("compilation", "graph 1", "cell 3, line 5", "[8, 5]", count=4),
        ]
    ),
)


@pytest.fixture(autouse=True)
def _device(shell):
    """The device of fake tensors."""


def layers():
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(2)))


def result_of(seen):
    return FitResult(
        "finished", "epoch 1 of 1, batch 8 of 8", "HPU 0 (simulated GAUDI2)", 8, 100, observed=seen
    )


def test_advice_for_a_fit_lists_changes_by_gain(golden):
    golden("advice_of_a_fit", repr(result_of(FIT).advice()), varying=False)


def test_fit_without_lost_time_gets_no_advice():
    quick = replace(
        FIT, waited_seconds=1.0, first_batches_seconds=0.5, ledger=None, later=DeviceCounts()
    )
    advice = result_of(replace(quick, counts=DeviceCounts(3, 5.0))).advice()
    assert len(advice) == 0
    assert advice.title() == (
        "Advice for a fit on HPU 0 (simulated GAUDI2): no faster alternative was found"
    )


@pytest.mark.parametrize(
    ("loader", "framework", "change"),
    [
        (
            LoaderSettings(0, pinned=False, persistent=False),
            "transformers",
            "args = TrainingArguments(..., dataloader_num_workers=4, dataloader_pin_memory=True, "
            "dataloader_persistent_workers=True)",
        ),
        (
            LoaderSettings(0, pinned=True, persistent=False),
            None,
            "loader = DataLoader(..., num_workers=4, persistent_workers=True)",
        ),
        (
            LoaderSettings(8, pinned=True, persistent=True),
            "lightning",
            "loader = DataLoader(..., num_workers=16)",
        ),
        (
            None,
            None,
            "loader = DataLoader(..., num_workers=4, pin_memory=True, persistent_workers=True)",
        ),
    ],
)
def test_loader_change_matches_the_framework(loader, framework, change):
    settings = FitSettings(loader=loader, framework=framework)
    seen = Observation("hpu:0", "lazy", settings, 1, 2, 10.0, 6.0, 0.0)
    [suggestion] = result_of(seen).advice()
    assert (suggestion.change, str(suggestion.gain)) == (change, "up to 2.50x (measured)")
    ast.parse(suggestion.change)


@pytest.mark.parametrize(
    ("operator", "framework", "change"),
    [
        (
            "aten::_fused_adamw_",
            "transformers",
            'args = TrainingArguments(..., optim="adamw_torch")',
        ),
        (
            "aten::_fused_sgd_",
            "transformers",
            "optimizer = torch.optim.SGD(model.parameters(), lr=..., fused=False)",
        ),
        (
            "aten::_fused_adamw_",
            None,
            "optimizer = torch.optim.AdamW(model.parameters(), lr=..., fused=False)",
        ),
    ],
)
def test_optimizer_on_the_cpu_is_replaced(operator, framework, change):
    counts = DeviceCounts(fallbacks={operator: 6})
    seen = Observation("hpu:0", settings=FitSettings(framework=framework), counts=counts)
    [suggestion] = result_of(seen).advice()
    assert (suggestion.title, suggestion.change) == (f"Keep {operator} off the CPU", change)


def test_estimated_gain_is_the_ratio_of_two_estimates():
    model = layers()
    advice = advise(model, X, mode="eager", dtype="fp32")
    before = estimate(model, X, mode="eager").samples_per_second
    arguments = {
        "Compile the model": {"mode": "compile"},
        "Use FusedAdamW, which updates all weights in one call": {"optimizer": "FusedAdamW"},
        "Use mixed precision with bfloat16": {"dtype": "bf16-mixed"},
    }
    seen = set()
    for each in advice:
        batch = re.match(r"Train with batches of (\d+)$", each.title)
        changed = {"batch": int(batch[1])} if batch else arguments[each.title]
        after = estimate(model, X, **{"mode": "eager"} | changed).samples_per_second
        assert each.gain.factor == pytest.approx(after / before)
        assert each.gain.factor >= 1.02
        low, high = each.gain.band
        assert low < each.gain.factor < high
        written = [
            f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}x"
            for value in (after / before, low, high)
        ]
        assert str(each.gain) == "{} (estimate; {} to {})".format(*written)
        seen.add(each.title.partition("batches")[0])
    assert {"Train with ", "Compile the model"} <= seen
    factors = [item.gain.factor for item in advice]
    assert factors == sorted(factors, reverse=True)


def test_lazy_mode_is_suggested_only_if_it_is_twice_as_fast():
    wide = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    for model, title in ((wide, "Compile the model"), (nn.LayerNorm(64), "Replay HPU Graphs")):
        paces = {
            mode: estimate(model, X, mode=mode, optimizer=None).samples_per_second
            for mode in ("compile", "graphs")
        }
        assert paces["compile"] < paces["graphs"]
        assert (2 * paces["compile"] < paces["graphs"]) == (title == "Replay HPU Graphs")
        assert title in [each.title for each in advise(model, X, mode="eager", optimizer=None)]


def test_estimated_change_names_alternatives_and_code(golden):
    text = repr(advise(layers(), X, mode="eager", optimizer=None, name="net"))
    [compiled] = re.findall(r"  \d\. Compile the model\n(?:     .*\n)+", text)
    golden("advice_to_compile", re.sub(r"\d+(\.\d+)?( [µm]?s)?", "#", compiled))
    assert text.startswith(
        "Advice for Sequential on gaudi2 (eager mode, fp32, batch 4, no optimizer): "
    )


def test_changes_that_make_a_model_fit_come_first():
    wide = nn.Sequential(
        *(nn.Sequential(nn.Linear(65536, 65536, device="meta"), nn.ReLU()) for _ in range(2))
    )
    advice = advise(wide, torch.empty(8, 65536, device="meta"), mode="lazy")
    first, *others = advice
    assert first.needed
    assert first.title.endswith("on 8 cards")
    band = r"\d+(\.\d+)?x \(estimate; \d+(\.\d+)?x to \d+(\.\d+)?x\)"
    assert re.fullmatch(rf"fits, .* less \(estimate\); speed {band}", first.gain_text)
    lacking = [other for other in others if other.gain and other.gain.source == "estimate"]
    assert all(
        "This change alone is not enough to make the step fit." in each.why for each in lacking
    )
    assert first.saves > 0
    assert not any(item.needed for item in others)
    assert "fully_shard" in first.change or "ZeroRedundancyOptimizer" in first.change


@pytest.mark.parametrize("framework", [None, "lightning", "transformers"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "eager", "dtype": "fp32"},
        {"mode": "lazy", "dtype": "bf16", "cards": 8, "checkpointing": "full"},
    ],
)
def test_each_change_is_valid_code(arguments, framework):
    class Attentive(nn.Sequential):
        def forward(self, x):
            before, after = self
            heads = before(x)[None, None]
            return after(nn.functional.scaled_dot_product_attention(heads, heads, heads))

    model = Attentive(layers(), Normed())
    base = estimate(model, X, **arguments)
    found = [*choices(model, base, "net.model", framework), of_batch(8, base, framework)]
    groups = {"batch", "precision", "optimizer", "checkpointing", "norms RMSNorm", "attention"}
    expected = {"eager": {"mode"}, "lazy": {"layout", "buckets"}}[arguments["mode"]]
    assert {item.group for item in found} == (groups | expected) - (
        {"checkpointing"} if arguments["mode"] == "eager" else set()
    )
    for each in found:
        ast.parse(TransformerManager().transform_cell(each.change))
        assert bool(each.command) != bool(each.by_hand)


@pytest.mark.parametrize("mode", ["eager", "lazy", "compile"])
def test_data_parallel_advice_suggests_views_of_gradient_buckets(mode):
    model = nn.Sequential(*(nn.Linear(1024, 1024, device="meta") for _ in range(16)))
    inputs = torch.empty(256, 1024, device="meta")
    advice = advise(model, inputs, mode=mode, dtype="bf16", cards=8)
    [one] = [each for each in advice if "buckets" in each.title]
    assert one.title.startswith("Make gradients views of the buckets")
    assert one.change.endswith("DistributedDataParallel(model, gradient_as_bucket_view=True)")
    assert one.gain.source == "estimate"
    assert one.gain.factor > 1.02
    # The gradients are in the buckets.
    gradients = sum(2 * weight.numel() for weight in model.parameters())
    assert gradients / 2 < one.saves <= gradients


def test_views_of_buckets_that_do_not_help_are_not_suggested():
    # These gradients are so small that copying them takes hardly any time in a lazy graph.
    small = advise(layers(), X, mode="lazy", dtype="bf16", cards=8)
    sharded = advise(layers(), X, mode="eager", dtype="bf16", cards=8, parallel="fsdp")
    assert not [each for each in (*small, *sharded) if "buckets" in each.title]


class Normed(nn.Module):
    """A layer between two norms."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.RMSNorm(64, eps=1e-6), nn.RMSNorm(64)
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        return self.after(self.layer(self.before(x)))


def test_plain_norms_are_found_and_restored():
    model = Normed()
    attributes = [dict(vars(module)) for module in model.modules()]
    advice = advise(model, X, mode="eager", dtype="fp32")
    assert [dict(vars(item)) for item in model.modules()] == attributes
    [one] = [each for each in advice if "FusedRMSNorm" in each.title]
    assert one.title == "Replace the 2 RMSNorm with FusedRMSNorm"
    # The replaced norms and the suggested code compute the same results.
    model.to("hpu")
    x = torch.randn(4, 64, device="hpu")
    expected = model(x)
    with fused_norms(plain_norms(model)["RMSNorm"]):
        torch.testing.assert_close(model(x), expected)
    exec(one.change, {"model": model})
    assert all("forward" in vars(norm) for norm in (model.before, model.after))
    torch.testing.assert_close(model(x), expected)


def test_norms_that_add_to_their_weight_are_not_replaced():
    class ShiftedRMSNorm(nn.RMSNorm):
        def forward(self, x):
            return nn.functional.rms_norm(x, self.normalized_shape, 1 + self.weight, self.eps)

    class OwnRMSNorm(nn.RMSNorm):
        pass

    model = nn.Sequential(ShiftedRMSNorm(64, eps=1e-6), OwnRMSNorm(64), nn.RMSNorm(64, eps=1e-6))
    assert plain_norms(model) == {"OwnRMSNorm": [model[1]], "RMSNorm": [model[2]]}


def test_norms_are_restored_after_an_interrupt():
    model = Normed()
    with pytest.raises(KeyboardInterrupt), fused_norms(plain_norms(model)["RMSNorm"]):
        raise KeyboardInterrupt
    assert not any("forward" in vars(norm) for norm in model.modules())


def test_norms_that_another_thread_has_replaced_are_found():
    model, found = Normed(), {}
    other = threading.Thread(target=lambda: found.update(plain_norms(model)))
    with one_at_a_time, fused_norms([model.before, model.after]):
        other.start()
        other.join(0.1)
    other.join()
    assert found == {"RMSNorm": [model.before, model.after]}


def test_attention_of_other_threads_is_not_replaced():
    plain = nn.functional.scaled_dot_product_attention
    query = torch.randn(1, 2, 8, 4, device="hpu", requires_grad=True)

    def attend():
        return type(plain(query, query, query, is_causal=True).grad_fn).__name__

    elsewhere: list[str] = []
    usual = attend()
    with fused_attention():
        here = attend()
        other = threading.Thread(target=lambda: elsewhere.append(attend()))
        other.start()
        other.join()
    assert here == "FusedSDPABackward" != usual
    assert [attend(), *elsewhere] == [usual, usual]
    assert nn.functional.scaled_dot_product_attention is plain


def test_first_generation_gets_no_fused_attention():
    class Attentive(nn.Module):
        def forward(self, x):
            heads = x.requires_grad_()[None, None]
            return nn.functional.scaled_dot_product_attention(heads, heads, heads)

    def groups(generation):
        model = Attentive()
        base = estimate(model, X, card=generation, train=False)
        return {choice.group for choice in choices(model, base, "model", None)}

    assert "attention" in groups("gaudi2")
    assert "attention" not in groups("gaudi")


def test_norms_with_more_arguments_are_not_replaced():
    class GatedRMSNorm(nn.RMSNorm):
        def forward(self, x, gate):
            return super().forward(x) * gate

    class Gated(nn.Sequential):
        def forward(self, x):
            return self[0](x, x)

    gated = Gated(GatedRMSNorm(64, eps=1e-6))
    titles = [each.title for each in advise(gated, X, mode="eager")]
    assert titles
    assert not any("FusedRMSNorm" in title for title in titles)


def test_advice_uses_the_settings_of_the_fit():
    bf16 = replace(FIT, mode="lazy", settings=FitSettings("bf16-mixed", 4, "SGD"), ranks=8)
    advice = advise(layers(), X, observed=result_of(bf16))
    assert advice.subject == "Sequential on 8 x gaudi2 (lazy mode, bf16-mixed, batch 4, sgd, ddp)"
    assert "Load batches during training" in {each.title for each in advice}
    assert all(item.gain.source in ("estimate", "measured") for item in advice if item.gain)


def test_advice_uses_a_ledger_report():
    report = replace(FIT.ledger, compilations=4, compile_seconds=2.0, fallbacks={"aten::histc": 40})
    titles = [each.title for each in advise(layers(), X, observed=report) if each.gain is None]
    assert titles == [
        "Keep shapes the same",
        "Keep aten::histc off the CPU",
        "Read values less often",
    ]


def test_advice_uses_the_settings_of_the_process():
    model = layers()
    assert advise(model, X).subject == "Sequential on gaudi2 (eager mode, fp32, batch 4, adamw)"
    with torch.autocast("hpu", dtype=torch.bfloat16):
        mixed = advise(model, X)
    assert mixed.subject == "Sequential on gaudi2 (eager mode, bf16-mixed, batch 4, adamw)"
    assert "Use mixed precision with bfloat16" not in {each.title for each in mixed}
    for compiled in (torch.compile(model, backend="hpu_backend"), layers()):
        compiled.compile(backend="hpu_backend")
        advice = advise(compiled, X)
        assert advice.subject == "Sequential on gaudi2 (compile mode, fp32, batch 4, adamw)"
        assert "Compile the model" not in {item.title for item in advice}


def test_inputs_can_be_named():
    class Named(nn.Sequential):
        def forward(self, features):
            return super().forward(features)

    model = Named(layers())
    assert repr(advise(model, features=X)) == repr(advise(model, X))


def test_layouts_with_deepspeeds_memory_have_a_remark():
    model = layers().bfloat16()
    base = estimate(model, X.bfloat16(), cards=8)
    layouts = [choice for choice in choices(model, base, "model", None) if choice.group == "layout"]
    assert {layout.arguments["parallel"]: bool(layout.remark) for layout in layouts} == {
        "zero1": True,
        "zero2": True,
        "fsdp": False,
    }


DEEPSPEED = {
    "train_batch_size": 32,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 1000},
}


def test_advice_on_a_fit_with_deepspeed_changes_its_configuration():
    settings = FitSettings("32-true", 1, "AdamW", framework="lightning", deepspeed=DEEPSPEED)
    seen = replace(FIT, settings=settings, ranks=2)
    wide = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    advice = advise(wide, torch.ones(4, 1024), observed=result_of(seen))
    assert advice.subject.endswith("on 2 x gaudi2 (eager mode, fp32, batch 4, fusedadamw, zero3)")
    changes = {each.title: each.change for each in advice}
    assert changes["Keep the whole model on each card"] == (
        'config["zero_optimization"]["stage"] = 0  # in DeepSpeed\'s configuration'
    )
    assert not any(
        "Distributed" in change or "fully_shard" in change for change in changes.values()
    )


def test_advice_keeps_the_memory_of_deepspeed_in_another_mode():
    model = layers()
    buckets = {"zero_optimization": {"stage": 2, "reduce_bucket_size": 10**9}}
    advice = advise(model, X, cards=2, deepspeed=buckets, mode="eager")
    compiled = next(each for each in advice if each.title == "Compile the model")
    assert abs(compiled.saves) < 10**9


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"dtpye": "bf16"},
            "'dtpye' is not an argument of the estimate or of Sequential: did you mean 'dtype'?",
        ),
        (
            {"observed": 3},
            "observed must be a fit result or a ledger report, got int: pass the result of "
            "hpu_magic.fit or %hpu_ledger last.",
        ),
    ],
)
def test_invalid_argument_raises_an_error(arguments, sentence):
    with pytest.raises(HPUError) as refused:
        advise(layers(), X, **arguments)
    assert str(refused.value) == sentence


def test_inputs_without_a_model_are_rejected():
    with pytest.raises(
        HPUError, match=r"as the first argument: call result.advice\(model, batch\)"
    ):
        result_of(FIT).advice(None, X)


SETUP = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
x = torch.empty(4096, 4096)
"""


@pytest.fixture
def models(succeeds):
    """Run a cell that must not fail in a shell with `model` and `x`."""
    succeeds(SETUP)
    return succeeds


def test_command_shows_and_stores_the_list(models):
    cell = models("%hpu_advise model --inputs x --mode lazy -o advice")
    kept = models("advice").result
    assert cell.out.count(kept.title()) == 1
    assert repr(kept) in cell.out
    html = models("advice._repr_html_()").result
    assert all("<td" in html and each.title in html for each in kept)
    # Lines of code scroll instead of breaking within words.
    codes = re.findall(r'<div style="[^"]*overflow-x:auto"><pre style="([^"]*)">', html)
    assert ["white-space:pre" in style.split(";") for style in codes] == [True] * len(kept)


def test_safe_change_is_applied(models):
    models("%hpu_advise model --inputs x --mode lazy -o advice")
    commands = [each.command for each in models("advice").result]
    number = commands.index("%hpu_autocast on") + 1
    models(f"%hpu_advise model --inputs x --mode lazy --apply {number}")
    assert models("torch.is_autocast_enabled('hpu')").result


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("model", "%hpu_advise needs --inputs x,y: type %hpu_advise model --inputs x,y"),
        ("model --inputs x --apply 99", "Unknown advice number 99: use 1 to "),
        ("model --inputs y", "Unknown variable 'y'"),
        (
            "model --inputs x --mode lasy",
            "or compile after --mode, not 'lasy'",
        ),
        ("x --inputs x", "The model is a Tensor; pass a torch.nn.Module."),
    ],
)
def test_invalid_line_reports_a_usage_error(models, rejected, line, sentence):
    assert sentence in rejected(f"%hpu_advise {line}")


def test_manual_change_is_shown_instead_of_applied(models, rejected):
    models("small = torch.empty(2, 4096)")
    models("%hpu_advise model --inputs small --mode lazy -o advice")
    titles = [each.title.partition(" of ")[0] for each in models("advice").result]
    number = titles.index("Train with batches") + 1
    message = rejected(f"%hpu_advise model --inputs small --mode lazy --apply {number}")
    assert "cannot be applied automatically, because your data loader creates the" in message
    assert "loader = DataLoader(..., batch_size=" in message


def test_recomputation_uses_the_models_method(models):
    models(
        """
        class Deep(nn.Sequential):
            recomputes = False
            def gradient_checkpointing_enable(self):
                self.recomputes = True
            @property
            def is_gradient_checkpointing(self):
                return self.recomputes
        with torch.device("meta"):
            half = lambda: [nn.Linear(64, 64), nn.GELU()]
            deep = Deep(*(nn.Sequential(*half(), *half()) for _ in range(8)))
            rows = torch.empty(2**24, 64)
        """
    )
    models("%hpu_advise deep --inputs rows --mode lazy --dtype fp32 -o advice")
    advice = models("advice").result
    commands = [each.command for each in advice]
    number = commands.index("deep.gradient_checkpointing_enable()") + 1
    assert advice.numbered(number).needed
    cell = models(f"%hpu_advise deep --inputs rows --mode lazy --apply {number} -o advice")
    applied = models("advice").result.numbered(number)
    assert f"Applied with {applied.command}: {applied.title}\n" in cell.out
    assert models("deep.recomputes").result
    # Changes that are applied or would fail are not suggested.
    model = models("deep").result
    base = estimate(model, models("rows").result)
    assert "checkpointing" not in {item.group.split()[0] for item in choices(model, base, "", None)}
    model.recomputes, model.supports_gradient_checkpointing = False, False
    found = [choice for choice in choices(model, base, "", None) if choice.group == "checkpointing"]
    assert [one.command for one in found] == ["", ""]


def test_indices_of_modules_are_written_as_code(models):
    models("model.deep = nn.ModuleList([nn.Sequential(nn.Linear(4096, 4096))])")
    models("%hpu_advise model.deep.0 --inputs x --mode eager -o advice")
    advice = advise(layers(), X, mode="eager", name="net.blocks.0.mlp.12")
    [compiled] = [item for item in advice if item.title == "Compile the model"]
    assert compiled.change == (
        'net.blocks[0].mlp[12] = torch.compile(net.blocks[0].mlp[12], backend="hpu_backend")'
    )
    for each in models("advice").result:
        ast.parse(TransformerManager().transform_cell(each.change))


def test_applied_change_is_not_suggested_again(models):
    line = "%hpu_advise model --inputs x --mode lazy -o advice"
    models(line)
    number = [item.command for item in models("advice").result].index("%hpu_autocast on") + 1
    models(f"{line} --apply {number}")
    models(line)
    after = models("advice").result
    models("%hpu_autocast off")
    assert "bf16-mixed" in after.subject
    assert "%hpu_autocast on" not in [each.command for each in after]


def test_results_of_fits_are_completed(models, shell):
    shell.user_ns["outcome"] = result_of(FIT)
    _, offered = shell.complete("%hpu_advise model --inputs x --observed ou")
    assert offered == ["outcome"]
    _, offered = shell.complete("%hpu_advise mo")
    assert "model" in offered


def test_slow_loader_is_the_first_suggestion_of_a_fit(succeeds):
    cell = succeeds(
        """
        import time, torch, hpu_magic
        class Slow(torch.utils.data.Dataset):
            def __len__(self):
                return 6
            def __getitem__(self, index):
                time.sleep(0.04)
                return torch.randn(8)
        held = torch.ones(1, device="hpu")
        for batch in (watched := hpu_magic.watch(torch.utils.data.DataLoader(Slow()))):
            pass
        watched.result.advice()
        """
    )
    first = cell.result[0]
    assert first.title == "Load batches in worker processes, in pinned memory"
    assert first.gain.source == "measured"
    assert first.gain.factor > 2
