"""Fabric on hpu, beside the same loop on the CPU."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ
NAMESPACES = ("lightning.fabric", "lightning_fabric")


@pytest.fixture(params=NAMESPACES)
def fabrics(request: pytest.FixtureRequest, torch: Any) -> Any:
    """Each of the two distributions of Fabric."""
    return pytest.importorskip(request.param)


@pytest.fixture
def fabric(torch: Any) -> Any:
    return importlib.import_module("lightning.fabric")


@pytest.fixture
def train(torch: Any, loader: Any) -> Callable[..., Any]:
    """Run a loop that accumulates, clips, evaluates and saves; return all that it had."""

    def run(fabric: Any, path: Path | None = None, steps: int = 8) -> dict[str, Any]:
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
                wanted = torch.nn.functional.one_hot(labels, 3)
                loss = (scores - wanted).square().sum() / scores.numel()
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


def test_a_loop_is_the_cpus(fabrics: Any, torch: Any, train: Any) -> None:
    cpu, hpu = (train(fabrics.Fabric(accelerator=name, devices=1)) for name in ("cpu", "hpu"))
    assert (cpu.pop("device"), hpu.pop("device")) == ("cpu", "hpu")
    mine, its = hpu.pop("weights"), cpu.pop("weights")
    assert hpu == cpu
    assert all(torch.equal(mine[name], value) for name, value in its.items())
    assert hpu["losses"][-1] < hpu["losses"][0]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_is_the_cpus(fabric: Any, torch: Any, train: Any, precision: str) -> None:
    cpu, hpu = (
        train(fabric.Fabric(accelerator=name, devices=1, precision=precision))
        for name in ("cpu", "hpu")
    )
    kept = torch.float32 if precision == "bf16-mixed" else torch.bfloat16
    assert hpu["types"] == cpu["types"] == {(torch.float32, kept)}
    assert hpu["losses"] == cpu["losses"]
    assert all(torch.equal(hpu["weights"][name], one) for name, one in cpu["weights"].items())


def test_losses_of_16_bits_are_scaled(fabric: Any, torch: Any, train: Any) -> None:
    full = train(fabric.Fabric(accelerator="hpu", devices=1))
    mixed = fabric.Fabric(accelerator="hpu", devices=1, precision="16-mixed")
    half = train(mixed)
    assert mixed.strategy.precision.state_dict()["_growth_tracker"] == 4
    torch.testing.assert_close(half["losses"], full["losses"], rtol=1e-2, atol=1e-3)
    assert half["losses"] != full["losses"]


def test_what_one_device_saves_the_other_loads(
    fabric: Any, torch: Any, train: Any, tmp_path: Path
) -> None:
    whole = train(fabric.Fabric(accelerator="cpu", devices=1), steps=16)
    for first, second in (("hpu", "cpu"), ("cpu", "hpu")):
        path = tmp_path / f"{first}.ckpt"
        train(fabric.Fabric(accelerator=first, devices=1), path)
        saved = torch.load(path, weights_only=True)["model"]
        assert {value.device.type for value in saved.values()} == {"cpu"}
        later = train(fabric.Fabric(accelerator=second, devices=1), path, steps=16)
        assert (later["device"], len(later["losses"])) == (second, 8)
        assert later["losses"] == whole["losses"][8:]
        assert all(
            torch.equal(later["weights"][name], one) for name, one in whole["weights"].items()
        )


def test_plugins_are_chosen_by_name_and_as_instances(fabrics: Any, torch: Any) -> None:
    from hpu_magic.lightning.namespaces import plugins

    made = plugins(fabrics.__name__)
    mine = made.HPUCheckpointIO()
    chosen = [
        fabrics.Fabric(accelerator="hpu", strategy="hpu_single", precision="bf16-mixed"),
        fabrics.Fabric(precision="bf16"),  # "auto" finds the card
        fabrics.Fabric(strategy="hpu_single", plugins=made.HPUPrecision("bf16-mixed")),
        fabrics.Fabric(
            accelerator=made.HPUAccelerator(),
            strategy=made.SingleHPUStrategy(),
            plugins=[made.HPUPrecision("bf16-mixed"), mine],
        ),
        fabrics.Fabric(
            strategy=made.SingleHPUStrategy(
                accelerator=made.HPUAccelerator(),
                precision=made.HPUPrecision("bf16-mixed"),
                checkpoint_io=mine,
            )
        ),
    ]
    for one in chosen:
        strategy = one.strategy
        parts = (one.accelerator, strategy, strategy.precision, strategy.checkpoint_io)
        assert [type(part) for part in parts] == [
            made.HPUAccelerator,
            made.SingleHPUStrategy,
            made.HPUPrecision,
            made.HPUCheckpointIO,
        ]
        assert strategy.precision.precision == "bf16-mixed"
        assert one.device == torch.device("hpu", 0)
    assert [one.strategy.checkpoint_io is mine for one in chosen] == [False] * 3 + [True] * 2
    assert fabrics.Fabric(accelerator="cpu").device.type == "cpu"


def test_layers_in_8_bits_train(fabric: Any, torch: Any, train: Any) -> None:
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
        ({"devices": 2, "strategy": "hpu_single"}, "trains on one card, and devices=2"),
        ({"devices": 2, "strategy": "dp"}, "strategy='dp' is not supported on hpu: .*='hpu_para"),
        ({"precision": "64-true"}, "precision='64-true' is not supported on hpu: write"),
        ({"precision": "fp8"}, r"write plugins=\[HPUPrecision\(precision='fp8', replace_layers"),
    ],
)
def test_what_cannot_be_had_is_refused(
    fabric: Any, arguments: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fabric.Fabric(accelerator="hpu", **arguments)


@pytest.mark.skipif(not LAZY, reason="eager mode records nothing")
def test_each_backward_and_each_step_is_one_graph(fabric: Any, torch: Any) -> None:
    from habana_frameworks.torch.hpu.metrics import metric_localcontext

    run = fabric.Fabric(accelerator="hpu", devices=1)
    layer = torch.nn.Linear(8, 1)
    layer, optimizer = run.setup(layer, torch.optim.SGD(layer.parameters(), lr=0.05))
    inputs = torch.ones(4, 8, device="hpu")

    def steps(count: int) -> None:
        for _ in range(count):
            run.backward(layer(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    steps(3)
    with metric_localcontext("graph_compilation") as metric:
        steps(3)
    assert dict(metric.stats())["TotalNumber"] == 0
