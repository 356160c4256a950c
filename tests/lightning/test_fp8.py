"""Test FP8 training with Lightning, as the plug-in's documentation describes it."""

import functools
import gc

import pytest
from steps import QUIET


@pytest.fixture
def plugin_class(pytorch):
    from hpu_magic.lightning.namespaces import plugins

    return plugins(pytorch.__name__).HPUPrecisionPlugin


@pytest.fixture
def te(torch):
    from habana_frameworks.torch.hpex.experimental import transformer_engine

    return transformer_engine


def fit(pytorch, model, plugin, epochs=6, **options):
    trainer = pytorch.Trainer(
        accelerator="hpu", devices=1, max_epochs=epochs, plugins=[plugin], **QUIET
    )
    trainer.fit(model, **options)
    return trainer


def test_documented_fp8_fit_converges(pytorch, plugin_class, make_model, te, torch):
    model = make_model()
    weights = [model.layers[0].weight, model.layers[2].weight]
    recipe = te.recipe.DelayedScaling()
    plugin = plugin_class(precision="fp8", replace_layers=True, recipe=recipe)
    plugin.convert_modules(model)
    assert [type(layer) for layer in model.layers] == [te.Linear, torch.nn.Tanh, te.Linear]
    assert [model.layers[0].weight, model.layers[2].weight] == weights
    fit(pytorch, model, plugin)
    assert model.seen == {("hpu:0", torch.bfloat16)}
    first = model.layers[0]
    assert first.weight.dtype == torch.float32
    assert first.fp8_meta["recipe"] is recipe
    amax = 240 / first.fp8_meta["scaling_fwd"].scale[1].item()
    assert amax == pytest.approx(first.weight.abs().max().item(), rel=0.1)
    assert model.losses[-1] < 0.5 * model.losses[0]
    plain = make_model()
    fit(pytorch, plain, plugin_class("bf16-mixed"))
    assert model.losses != plain.losses
    assert model.losses[-1] == pytest.approx(plain.losses[-1], rel=0.25)


def test_layers_are_replaced_when_a_fit_begins(pytorch, plugin_class, make_model, te):
    kept, replaced = make_model(), make_model()
    fit(pytorch, kept, plugin_class("fp8"), epochs=1)
    fit(pytorch, replaced, plugin_class("fp8", replace_layers=True), epochs=1)
    assert not any(isinstance(layer, te.Linear) for layer in kept.layers)
    assert isinstance(replaced.layers[0], te.Linear)
    assert replaced.layers[0].fp8_meta["scaling_bwd"].scale.item() != 1.0


def test_resumed_fp8_fit_equals_an_uninterrupted_one(
    pytorch, plugin_class, make_model, torch, tmp_path, monkeypatch
):
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")  # a resumed fit draws different random numbers

    def plugin():
        return plugin_class(
            "fp8", recipe={"interval": 3, "amax_history_len": 4}, replace_layers=True
        )

    uninterrupted, first, second = make_model(), make_model(), make_model()
    for model in (uninterrupted, first, second):
        plugin().convert_modules(model)
    fit(pytorch, uninterrupted, plugin(), epochs=4)
    fit(pytorch, first, plugin(), epochs=2).save_checkpoint(tmp_path / "half.ckpt")
    fit(pytorch, second, plugin(), epochs=4, ckpt_path=tmp_path / "half.ckpt")
    for found, expected in zip(second.parameters(), uninterrupted.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert first.losses + second.losses == uninterrupted.losses


def test_only_plain_linear_layers_are_replaced(plugin_class, te, torch):
    plugin = plugin_class("fp8", replace_layers=True)

    class Derived(torch.nn.Linear):
        pass

    shared = torch.nn.Linear(4, 4, bias=False).eval()
    types = []
    shared.register_forward_hook(lambda module, *_: types.append(type(module)))
    model = torch.nn.ModuleDict(
        {"a": shared, "b": Derived(4, 4), "c": torch.nn.ModuleList([shared])}
    )
    assert plugin.convert_modules(model) is model
    assert model["a"] is model["c"][0]
    assert type(model["b"]) is Derived
    assert (type(model["a"]), model["a"].bias, model["a"].training) == (te.Linear, None, False)
    assert model["a"].weight is shared.weight
    assert torch.equal(model["a"](torch.eye(4)), shared.weight.t())
    assert types == [te.Linear]
    converted = plugin.convert_modules(torch.nn.Linear(2, 2))
    assert isinstance(converted, te.Linear)
    assert plugin.convert_modules(converted) is converted
    plain = torch.nn.Linear(2, 2)
    assert plugin_class("fp8").convert_modules(plain) is plain


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("weight_norm", ["weight_g", "weight_v"]),
        ("spectral_norm", ["weight_orig"]),
        ("prune", ["weight_orig"]),
    ],
)
def test_parametrized_weight_stays_parametrized(plugin_class, te, torch, method, parameters):
    compute = getattr(torch.nn.utils, method)
    if method == "prune":
        compute = functools.partial(compute.l1_unstructured, name="weight", amount=0.5)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    compute(model[0])
    data = torch.randn(2, 4)
    expected, state = model(data), set(model.state_dict())
    plugin = plugin_class("fp8", replace_layers=True)
    plugin.convert_modules(model)
    assert type(model[0]) is te.Linear
    assert torch.equal(model(data), expected)
    assert set(model.state_dict()) == {*state, "0._extra_state"}
    model.train().to("hpu")
    with plugin.forward_context():
        out = model(data.to("hpu"))
    assert out.dtype is torch.bfloat16
    out.float().square().sum().backward()
    found = dict(model[0].named_parameters())
    assert sorted(found) == sorted(["bias", *parameters])
    assert all(each.grad.abs().sum() > 0 for each in found.values())


def test_replacement_keeps_attributes_and_hooks_of_a_layer(plugin_class, te, torch):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].rank = 8
    model[0].register_buffer("mask", torch.ones(2), persistent=False)
    called = []
    model[0].register_load_state_dict_pre_hook(
        lambda module, *_: called.append(type(module).__module__)
    )
    handle = model[0].register_forward_hook(lambda *_: called.append("forward"))
    model[1].forward = lambda data: data * 2
    plugin_class("fp8", replace_layers=True).convert_modules(model)
    gc.collect()
    model.load_state_dict(model.state_dict())
    assert called == [te.Linear.__module__]
    assert (model[0].rank, list(model[0].state_dict())) == (8, ["weight", "bias", "_extra_state"])
    assert torch.equal(model[0].mask, torch.ones(2))
    handle.remove()
    data = torch.ones(1, 2)
    assert torch.equal(model(data), 2 * torch.nn.functional.linear(data, *model[0].parameters()))
    assert called == [te.Linear.__module__]
    assert type(model[1]) is torch.nn.Linear  # a custom forward is kept


def test_recipe_can_be_specified_by_its_options(plugin_class, te):
    recipe = plugin_class("fp8", recipe={"interval": 16, "fp8_format": "E5M2"}).recipe
    assert recipe == te.recipe.DelayedScaling(interval=16, fp8_format=te.recipe.Format.E5M2)
    assert plugin_class("fp8").recipe == te.recipe.DelayedScaling()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"precision": "fp4"}, "precision='fp4' is not supported on hpu: .* or 'fp8'"),
        ({"recipe": {"margin": 0}}, "options of precision='fp8', not of '32-true'"),
        (
            {"precision": "bf16-mixed", "replace_layers": True},
            "options of precision='fp8', not of 'bf16-mixed'",
        ),
        ({"precision": "fp8", "recipe": "E5M2"}, "recipe='E5M2' is not a recipe: write Delay"),
        (
            {"precision": "fp8", "recipe": {"fp8_format": "HYBRD"}},
            r"fp8_format='HYBRD' is not a valid format: did you mean 'HYBRID'\?",
        ),
        ({"precision": "fp8", "recipe": {"interval": 0}}, "interval=0 is too small"),
        (
            {"precision": "fp8", "recipe": {"intervall": 4}},
            r"The recipe's option 'intervall' is unknown: did you mean 'interval'\?",
        ),
        (
            {"precision": "fp8", "recipe": {"steps": 4}},
            "The recipe's option 'steps' is unknown: use margin, interval, fp8_format, amax",
        ),
    ],
)
def test_invalid_options_are_refused(plugin_class, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        plugin_class(**options)


def test_only_fp8_converts_a_model(plugin_class, torch):
    with pytest.raises(ValueError, match=r"convert_modules requires precision='fp8'.*'bf16-mixed'"):
        plugin_class("bf16-mixed").convert_modules(torch.nn.Linear(2, 2))
