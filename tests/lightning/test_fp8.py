"""Training in 8 bits with Lightning, as the documentation of the plug-in writes it."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import pytest

NAMESPACES = ("lightning.pytorch", "pytorch_lightning")
QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}


@pytest.fixture(params=NAMESPACES)
def pytorch(request: pytest.FixtureRequest, torch: Any) -> Any:
    """Each of the two distributions of Lightning."""
    return pytest.importorskip(request.param)


@pytest.fixture
def plugin_class(pytorch: Any) -> Any:
    from hpu_magic.lightning.namespaces import plugins

    return plugins(pytorch.__name__).HPUPrecisionPlugin


@pytest.fixture
def te(torch: Any) -> Any:
    from habana_frameworks.torch.hpex.experimental import transformer_engine

    return transformer_engine


@pytest.fixture
def make_model(pytorch: Any, torch: Any) -> Any:
    """Make a small regression model that notes losses and dtypes as it trains."""

    class Model(pytorch.LightningModule):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
            )
            self.losses: list[float] = []
            self.dtypes: set[Any] = set()

        def training_step(self, batch: Any, index: int) -> Any:
            (inputs,) = batch
            outputs = self.layers(inputs)
            self.dtypes.add(outputs.dtype)
            loss = (outputs.float() - inputs.sum(1, keepdim=True)).square().mean()
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.dtypes.add(self.layers(batch[0]).dtype)

        def _loader(self) -> Any:
            generator = torch.Generator().manual_seed(0)
            data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=generator))
            return torch.utils.data.DataLoader(data, batch_size=16)

        train_dataloader = val_dataloader = _loader

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Model


def fit(pytorch: Any, model: Any, plugin: Any, epochs: int = 6, **options: Any) -> Any:
    trainer = pytorch.Trainer(
        accelerator="hpu", devices=1, max_epochs=epochs, plugins=[plugin], **QUIET
    )
    trainer.fit(model, **options)
    return trainer


def test_a_fit_as_documented(
    pytorch: Any, plugin_class: Any, make_model: Any, te: Any, torch: Any
) -> None:
    model = make_model()
    weights = [model.layers[0].weight, model.layers[2].weight]
    recipe = te.recipe.DelayedScaling()
    plugin = plugin_class(precision="fp8", replace_layers=True, recipe=recipe)
    plugin.convert_modules(model)
    assert [type(layer) for layer in model.layers] == [te.Linear, torch.nn.Tanh, te.Linear]
    assert [model.layers[0].weight, model.layers[2].weight] == weights
    fit(pytorch, model, plugin)
    assert model.dtypes == {torch.bfloat16}
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


def test_layers_are_replaced_where_a_fit_begins(
    pytorch: Any, plugin_class: Any, make_model: Any, te: Any
) -> None:
    kept, replaced = make_model(), make_model()
    fit(pytorch, kept, plugin_class("fp8"), epochs=1)
    fit(pytorch, replaced, plugin_class("fp8", replace_layers=True), epochs=1)
    assert not any(isinstance(layer, te.Linear) for layer in kept.layers)
    assert isinstance(replaced.layers[0], te.Linear)
    assert replaced.layers[0].fp8_meta["scaling_bwd"].scale.item() != 1.0


def test_a_resumed_fit_is_an_uninterrupted_one(
    pytorch: Any,
    plugin_class: Any,
    make_model: Any,
    torch: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")  # a resumed fit draws other random numbers

    def plugin() -> Any:
        return plugin_class(
            "fp8", recipe={"interval": 3, "amax_history_len": 4}, replace_layers=True
        )

    whole, first, second = make_model(), make_model(), make_model()
    for model in (whole, first, second):
        plugin().convert_modules(model)
    fit(pytorch, whole, plugin(), epochs=4)
    fit(pytorch, first, plugin(), epochs=2).save_checkpoint(tmp_path / "half.ckpt")
    fit(pytorch, second, plugin(), epochs=4, ckpt_path=tmp_path / "half.ckpt")
    for mine, its in zip(second.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, its)
    assert first.losses + second.losses == whole.losses


def test_what_is_replaced(plugin_class: Any, te: Any, torch: Any) -> None:
    plugin = plugin_class("fp8", replace_layers=True)

    class Derived(torch.nn.Linear):  # type: ignore[name-defined,misc]
        pass

    shared = torch.nn.Linear(4, 4, bias=False).eval()
    seen = []
    shared.register_forward_hook(lambda module, *_: seen.append(type(module)))
    model = torch.nn.ModuleDict(
        {"a": shared, "b": Derived(4, 4), "c": torch.nn.ModuleList([shared])}
    )
    assert plugin.convert_modules(model) is model
    assert model["a"] is model["c"][0]
    assert type(model["b"]) is Derived
    assert (type(model["a"]), model["a"].bias, model["a"].training) == (te.Linear, None, False)
    assert model["a"].weight is shared.weight
    assert torch.equal(model["a"](torch.eye(4)), shared.weight.t())
    assert seen == [te.Linear]
    alone = plugin.convert_modules(torch.nn.Linear(2, 2))
    assert isinstance(alone, te.Linear)
    assert plugin.convert_modules(alone) is alone
    plain = torch.nn.Linear(2, 2)
    assert plugin_class("fp8").convert_modules(plain) is plain


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize(
    ("way", "parameters"),
    [
        ("weight_norm", ["weight_g", "weight_v"]),
        ("spectral_norm", ["weight_orig"]),
        ("prune", ["weight_orig"]),
    ],
)
def test_a_weight_that_is_computed_of_others_stays_so(
    plugin_class: Any, te: Any, torch: Any, way: str, parameters: list[str]
) -> None:
    compute = getattr(torch.nn.utils, way)
    if way == "prune":
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


def test_what_a_layer_carries_goes_with_its_replacement(
    plugin_class: Any, te: Any, torch: Any
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].rank = 8
    model[0].register_buffer("mask", torch.ones(2), persistent=False)
    met: list[str] = []
    model[0].register_load_state_dict_pre_hook(
        lambda module, *_: met.append(type(module).__module__)
    )
    handle = model[0].register_forward_hook(lambda *_: met.append("forward"))
    model[1].forward = lambda data: data * 2
    plugin_class("fp8", replace_layers=True).convert_modules(model)
    gc.collect()
    model.load_state_dict(model.state_dict())
    assert met == [te.Linear.__module__]
    assert (model[0].rank, list(model[0].state_dict())) == (8, ["weight", "bias", "_extra_state"])
    assert torch.equal(model[0].mask, torch.ones(2))
    handle.remove()
    given = torch.ones(1, 2)
    assert torch.equal(model(given), 2 * torch.nn.functional.linear(given, *model[0].parameters()))
    assert met == [te.Linear.__module__]
    assert type(model[1]) is torch.nn.Linear  # it computes something else


def test_a_recipe_may_be_given_by_its_options(plugin_class: Any, te: Any) -> None:
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
            r"fp8_format='HYBRD' is not a format: did you mean 'HYBRID'\?",
        ),
        ({"precision": "fp8", "recipe": {"interval": 0}}, "interval=0 is too small"),
        (
            {"precision": "fp8", "recipe": {"intervall": 4}},
            r"A recipe has no option 'intervall': did you mean 'interval'\?",
        ),
        (
            {"precision": "fp8", "recipe": {"steps": 4}},
            "A recipe has no option 'steps': use margin, interval, fp8_format, amax_history",
        ),
    ],
)
def test_wrong_options_are_refused(
    plugin_class: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        plugin_class(**options)


def test_only_8_bits_convert_a_model(plugin_class: Any, torch: Any) -> None:
    with pytest.raises(ValueError, match=r"convert_modules is for precision='fp8'.*'bf16-mixed'"):
        plugin_class("bf16-mixed").convert_modules(torch.nn.Linear(2, 2))


def test_the_first_generation_has_no_8_bits(forked_script: Any) -> None:
    out = forked_script(
        """
        from hpu_magic.lightning import HPUPrecisionPlugin

        try:
            HPUPrecisionPlugin("fp8")
        except ValueError as refusal:
            print(refusal)
        """,
        simulated=True,
        HPU_MAGIC_CARD="gaudi",
    )
    assert out.splitlines()[-1] == (
        "precision='fp8' needs a Gaudi2 or a later card, and this machine has GAUDI: write "
        "precision='bf16-mixed'."
    )
