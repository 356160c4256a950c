"""Checkpoints go from the card to machines without one and back, and fits go on from them."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

LOAD_WITHOUT_A_DEVICE = """
import sys
import torch
assert not hasattr(torch, "hpu"), "this process must have no hpu"
checkpoint = torch.load(sys.argv[1], weights_only=True)
tensors = list(checkpoint["state_dict"].values())
tensors += [each["momentum_buffer"] for each in checkpoint["optimizer_states"][0]["state"].values()]
print({one.device.type for one in tensors}, len(tensors))
"""


def test_a_fit_goes_on_elsewhere(
    trainer: Any, net: Any, loader: Any, same_weights: Any, tmp_path: Path, torch: Any
) -> None:
    whole = net()
    trainer("cpu", max_epochs=4).fit(whole, loader(shuffle=False))
    for first, second in (("hpu", "cpu"), ("cpu", "hpu")):
        path = tmp_path / f"{first}.ckpt"
        begun, resumed = net(), net()
        run = trainer(first, max_epochs=2)
        run.fit(begun, loader(shuffle=False))
        run.save_checkpoint(path)
        later = trainer(second, max_epochs=4)
        later.fit(resumed, loader(shuffle=False), ckpt_path=path)
        assert {device for _, device, _ in resumed.seen} == {second}
        same_weights(resumed, whole, rtol=0, atol=0)
        assert later.lr_scheduler_configs[0].scheduler.get_last_lr() == [0.1 * 0.5**2]
        loaded = net.load_from_checkpoint(path, map_location="hpu")
        assert {value.device.type for value in loaded.state_dict().values()} == {"hpu"}
        same_weights(loaded, begun, rtol=0, atol=0)


def test_a_process_without_the_device_reads_a_checkpoint(
    trainer: Any, net: Any, loader: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer("hpu", max_epochs=1)
    run.fit(net(), loader())
    run.save_checkpoint(tmp_path / "one.ckpt")
    for variable in ("HPU_MAGIC_SIMULATOR", "PT_HPU_LAZY_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    done = subprocess.run(
        [sys.executable, "-c", LOAD_WITHOUT_A_DEVICE, str(tmp_path / "one.ckpt")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "{'cpu'} 15\n", done.stderr


def test_an_interrupted_fit_goes_on_as_the_cpus(
    lightning: Any,
    trainer: Any,
    net: Any,
    loader: Any,
    same_weights: Any,
    logged: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupt(lightning.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_start(self, run: Any, *_: Any) -> None:
            if run.global_step == 6:
                raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)  # Lightning would ignore interrupts
    models, texts = [], []
    for accelerator in ("cpu", "hpu"):
        begun, resumed = net(), net()
        saving = lightning.callbacks.ModelCheckpoint(
            tmp_path / f"{accelerator}-steps",
            every_n_train_steps=1,
            save_last=True,
            save_on_train_epoch_end=False,
        )
        first = trainer(
            accelerator, max_epochs=3, enable_checkpointing=True, callbacks=[saving, Interrupt()]
        )
        with pytest.raises(SystemExit):
            first.fit(begun, loader(shuffle=False))
        assert first.interrupted
        second = trainer(
            accelerator, max_epochs=3, enable_checkpointing=True, callbacks=[copy.copy(saving)]
        )
        second.fit(resumed, loader(shuffle=False), ckpt_path="last")
        assert (len(begun.seen), second.global_step) == (6, 12)
        assert {device for _, device, _ in resumed.seen} == {accelerator}
        models.append((begun, resumed))
        texts.append((logged(first), logged(second)))
    assert texts[0] == texts[1]
    for cpu, hpu in zip(*models, strict=True):
        same_weights(hpu, cpu, rtol=0, atol=0)


def test_what_is_one_tensor_stays_one(torch: Any, lightning: Any, tmp_path: Path) -> None:
    from hpu_magic.lightning import HPUCheckpointIO

    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)
    ).to("hpu")
    model[1].weight = model[0].weight
    state = model.state_dict()
    nested = {"state": state, "parts": [state["0.bias"][:3], (1, "two")]}
    HPUCheckpointIO().save_checkpoint(nested, tmp_path / "tied.ckpt")
    loaded = torch.load(tmp_path / "tied.ckpt", weights_only=False)
    assert type(loaded["state"]) is OrderedDict
    assert loaded["state"]._metadata == state._metadata
    weights = [loaded["state"][name] for name in ("0.weight", "1.weight")]
    assert weights[0].data_ptr() == weights[1].data_ptr()
    assert torch.equal(weights[0], model[0].weight.detach().cpu())
    assert loaded["parts"][1] == (1, "two")
    assert torch.equal(loaded["parts"][0], state["0.bias"][:3].cpu())
    assert {value.device.type for value in state.values()} == {"hpu"}
    assert (tmp_path / "tied.ckpt").stat().st_size < 1.5 * 64 * 64 * 4


def test_checkpoints_are_written_by_whom_they_are_given_to(
    lightning: Any, trainer: Any, net: Any, loader: Any, torch: Any, tmp_path: Path
) -> None:
    from hpu_magic.lightning import HPUCheckpointIO, SingleHPUStrategy

    plugins = lightning.plugins
    mine = HPUCheckpointIO()
    run = trainer("hpu", strategy=SingleHPUStrategy(), plugins=[mine])
    assert run.strategy.checkpoint_io is mine
    assert trainer(
        "hpu", strategy=SingleHPUStrategy(checkpoint_io=mine)
    ).strategy.checkpoint_io is (mine)
    behind = plugins.AsyncCheckpointIO()
    run = trainer("hpu", max_epochs=1, plugins=[behind])
    model = net()
    run.fit(model, loader())
    run.save_checkpoint(tmp_path / "async.ckpt")
    behind.teardown()
    assert isinstance(behind.checkpoint_io, HPUCheckpointIO)
    state = torch.load(tmp_path / "async.ckpt", weights_only=False)["state_dict"]
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert torch.equal(state["head.weight"], model.head.weight.detach().cpu())
