"""Test Fabric loops on hpu against the same loops on the CPU."""

import importlib
import os

import pytest

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
NAMESPACES = ("lightning.fabric", "lightning_fabric")


@pytest.fixture(params=NAMESPACES)
def fabrics(request, torch):
    """Each of the two distributions of Fabric."""
    return pytest.importorskip(request.param)


@pytest.fixture
def fabric(torch):
    return importlib.import_module("lightning.fabric")


@pytest.fixture
def train(torch, loader):
    """A function that runs a loop with accumulation, clipping, evaluation and saving."""

    def run(fabric, path=None, steps=8):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model, optimizer = fabric.setup(model, optimizer)
        batches = fabric.setup_dataloaders(loader(shuffle=False))
        state = {"model": model, "optimizer": optimizer, "step": 0}
        if path is not None and path.exists():
            fabric.load(path, state)
        losses, types = [], set()
        while state["step"] < steps:
            for inputs, labels in batches:
                scores = model(inputs)
                types.add((scores.dtype, model.module[0].weight.dtype))
                target = torch.nn.functional.one_hot(labels, 3)
                loss = (scores - target).square().sum() / scores.numel()
                fabric.backward(loss)
                state["step"] += 1
                losses.append(loss.item())
                if state["step"] % 2 == 0:
                    if state["step"] % 4:
                        fabric.clip_gradients(model, optimizer, max_norm=0.5)
                    else:
                        fabric.clip_gradients(model, optimizer, clip_val=0.05)
                    optimizer.step()
                    optimizer.zero_grad()
        if path is not None and not path.exists():
            fabric.save(path, state)
        with torch.no_grad():
            predicted = [model(inputs).softmax(1).tolist() for inputs, _ in batches]
        weights = {name: value.cpu() for name, value in model.state_dict().items()}
        device = next(model.parameters()).device.type
        return {
            "device": device,
            "losses": losses,
            "types": types,
            "weights": weights,
            "predicted": predicted,
            "steps": state["step"],
        }

    return run


def test_fabric_loop_equals_the_cpu(fabrics, torch, train):
    cpu, hpu = (train(fabrics.Fabric(accelerator=name, devices=1)) for name in ("cpu", "hpu"))
    assert (cpu.pop("device"), hpu.pop("device")) == ("cpu", "hpu")
    weights, expected = hpu.pop("weights"), cpu.pop("weights")
    assert hpu == cpu
    assert all(torch.equal(weights[name], value) for name, value in expected.items())
    assert hpu["losses"][-1] < hpu["losses"][0]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_equals_the_cpu(fabric, torch, train, precision):
    cpu, hpu = (
        train(fabric.Fabric(accelerator=name, devices=1, precision=precision))
        for name in ("cpu", "hpu")
    )
    kept = torch.float32 if precision == "bf16-mixed" else torch.bfloat16
    assert hpu["types"] == cpu["types"] == {(torch.float32, kept)}
    assert hpu["losses"] == cpu["losses"]
    assert all(torch.equal(hpu["weights"][name], each) for name, each in cpu["weights"].items())


def test_float16_losses_are_scaled(fabric, torch, train):
    full = train(fabric.Fabric(accelerator="hpu", devices=1))
    mixed = fabric.Fabric(accelerator="hpu", devices=1, precision="16-mixed")
    half = train(mixed)
    assert mixed.strategy.precision.state_dict()["_growth_tracker"] == 4
    torch.testing.assert_close(half["losses"], full["losses"], rtol=1e-2, atol=1e-3)
    assert half["losses"] != full["losses"]


def test_checkpoint_of_one_device_loads_on_the_other(fabric, torch, train, tmp_path):
    uninterrupted = train(fabric.Fabric(accelerator="cpu", devices=1), steps=16)
    for first, second in (("hpu", "cpu"), ("cpu", "hpu")):
        path = tmp_path / f"{first}.ckpt"
        train(fabric.Fabric(accelerator=first, devices=1), path)
        saved = torch.load(path, weights_only=True)["model"]
        assert {value.device.type for value in saved.values()} == {"cpu"}
        later = train(fabric.Fabric(accelerator=second, devices=1), path, steps=16)
        assert (later["device"], len(later["losses"])) == (second, 8)
        assert later["losses"] == uninterrupted["losses"][8:]
        assert all(
            torch.equal(later["weights"][name], each)
            for name, each in uninterrupted["weights"].items()
        )


def test_plug_ins_are_selected_by_name_and_as_instances(fabrics, torch):
    from hpu_magic.lightning.namespaces import plugins

    classes = plugins(fabrics.__name__)
    writer = classes.HPUCheckpointIO()
    chosen = [
        fabrics.Fabric(accelerator="hpu", strategy="hpu_single", precision="bf16-mixed"),
        fabrics.Fabric(precision="bf16"),  # "auto" finds the card
        fabrics.Fabric(strategy="hpu_single", plugins=classes.HPUPrecision("bf16-mixed")),
        fabrics.Fabric(
            accelerator=classes.HPUAccelerator(),
            strategy=classes.SingleHPUStrategy(),
            plugins=[classes.HPUPrecision("bf16-mixed"), writer],
        ),
        fabrics.Fabric(
            strategy=classes.SingleHPUStrategy(
                accelerator=classes.HPUAccelerator(),
                precision=classes.HPUPrecision("bf16-mixed"),
                checkpoint_io=writer,
            )
        ),
    ]
    for each in chosen:
        strategy = each.strategy
        parts = (each.accelerator, strategy, strategy.precision, strategy.checkpoint_io)
        assert [type(part) for part in parts] == [
            classes.HPUAccelerator,
            classes.SingleHPUStrategy,
            classes.HPUPrecision,
            classes.HPUCheckpointIO,
        ]
        assert strategy.precision.precision == "bf16-mixed"
        assert each.device == torch.device("hpu", 0)
    assert [each.strategy.checkpoint_io is writer for each in chosen] == [False] * 3 + [True] * 2
    assert fabrics.Fabric(accelerator="cpu").device.type == "cpu"


def test_fp8_layers_train(fabric, torch, train):
    from habana_frameworks.torch.hpex.experimental import transformer_engine

    from hpu_magic.lightning.fabric import HPUPrecision

    plugin = HPUPrecision("fp8", replace_layers=True, recipe={"interval": 2})
    run = fabric.Fabric(accelerator="hpu", devices=1, plugins=plugin)
    model, _ = run.setup(
        model := torch.nn.Sequential(torch.nn.Linear(16, 16)),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )
    assert type(model.module[0]) is transformer_engine.Linear
    outputs = model(torch.ones(16, 16, device="hpu"))
    assert outputs.dtype == torch.float32
    run.backward(outputs.sum())
    assert model.module[0].fp8_meta["recipe"].interval == 2
    assert model.module[0].weight.grad is not None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"devices": 2},
            "devices=2 needs 2 processes, .* begin the cell with %%hpu_workers --cards 2",
        ),
        ({"devices": 0}, "devices=0 is not a number of cards: write devices=1"),
        ({"devices": 2, "strategy": "hpu_single"}, "trains on only one card, but devices=2"),
        ({"devices": 2, "strategy": "dp"}, "strategy='dp' is not supported on hpu: .*='hpu_para"),
        ({"precision": "64-true"}, "precision='64-true' is not supported on hpu: write"),
        ({"precision": "fp8"}, r"write plugins=\[HPUPrecision\(precision='fp8', replace_layers"),
    ],
)
def test_unsupported_arguments_of_fabric_are_refused(fabric, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        fabric.Fabric(accelerator="hpu", **arguments)


@pytest.mark.skipif(not LAZY, reason="eager mode compiles nothing")
def test_repeated_steps_compile_nothing_in_lazy_mode(fabric, torch):
    from habana_frameworks.torch.hpu.metrics import metric_localcontext

    run = fabric.Fabric(accelerator="hpu", devices=1)
    layer = torch.nn.Linear(8, 1)
    layer, optimizer = run.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.05))
    inputs = torch.ones(4, 8, device="hpu")

    def steps(count):
        for _ in range(count):
            run.backward(layer(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    steps(3)
    with metric_localcontext("graph_compilation") as metric:
        steps(3)
    assert dict(metric.stats())["TotalNumber"] == 0
