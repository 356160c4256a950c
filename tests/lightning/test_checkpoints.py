"""Checkpoints go from the card to machines without one and back, and fits go on from them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import signal
import subprocess
import sys
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
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


def test_what_attributes_of_tensors_share_stays_one(
    torch: Any, lightning: Any, tmp_path: Path
) -> None:
    from hpu_magic.lightning import HPUCheckpointIO

    shared = Running(None)
    tensors = [torch.ones(2, device="hpu") for _ in range(2)]
    for tensor in tensors:
        tensor.shared = shared
    shared.total = tensors[0]  # which has it as an attribute
    path = tmp_path / "shared.ckpt"
    HPUCheckpointIO().save_checkpoint({"shared": shared, "tensors": tensors}, path)
    loaded = torch.load(path, weights_only=False)
    found = [loaded["shared"], *(tensor.shared for tensor in loaded["tensors"])]
    assert all(one is found[0] for one in found)
    assert loaded["shared"].total is loaded["tensors"][0]
    assert {tensor.device.type for tensor in loaded["tensors"]} == {"cpu"}
    assert {tensor.device.type for tensor in tensors} == {"hpu"}


@dataclasses.dataclass
class Running:
    total: Any
    name: str = "loss"


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class OwnMapping(Mapping[str, Any]):
    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def test_tensors_reach_the_host_in_whatever_holds_them(
    torch: Any, lightning: Any, tmp_path: Path
) -> None:
    from hpu_magic.lightning import HPUCheckpointIO

    class Marked(torch.Tensor):  # type: ignore[name-defined,misc]
        pass

    globals()["Marked"] = Marked  # pickle finds classes by name
    Marked.__qualname__ = "Marked"

    def made(device: str) -> tuple[dict[str, Any], dict[str, Any]]:
        one = torch.arange(3.0, device=device)
        marked = one.clone().as_subclass(Marked)
        marked.scale = torch.ones(1, device=device)
        module = torch.nn.Linear(2, 1).to(device)
        torch.nn.init.ones_(module.weight)
        module.loss = Running(one)
        counts = defaultdict(list, {"a": [one]})
        holders = {
            "dataclass": Running(one),
            "ordered": OrderedDict(a=one),
            "counts": counts,
            "deque": deque([one], maxlen=2),
            "set": {one},
            "frozen set": frozenset([one]),
            "mapping": OwnMapping(a=one),
            "user dict": UserDict(a=one),
            "slots": Slotted(one),
            "namespace": SimpleNamespace(a={"b": [one]}),
            "array": numpy_array_of(one),
            "partial": functools.partial(max, one),
            "module": module,
            "parameter": torch.nn.Parameter(one),
            "class": marked,
            "number": 7,
        }
        tensors = {
            "dataclass": lambda it: [it["dataclass"].total],
            "ordered": lambda it: [it["ordered"]["a"]],
            "counts": lambda it: it["counts"]["a"],
            "deque": lambda it: list(it["deque"]),
            "set": lambda it: list(it["set"]),
            "frozen set": lambda it: list(it["frozen set"]),
            "mapping": lambda it: [it["mapping"]["a"]],
            "user dict": lambda it: [it["user dict"]["a"]],
            "slots": lambda it: [it["slots"].tensor],
            "namespace": lambda it: it["namespace"].a["b"],
            "array": lambda it: [it["array"][0]],
            "partial": lambda it: list(it["partial"].args),
            "module": lambda it: [it["module"].weight, it["module"].loss.total],
            "parameter": lambda it: [it["parameter"]],
            "class": lambda it: [it["class"], it["class"].scale],
            "number": lambda it: [torch.tensor(it["number"])],
        }
        return holders, tensors

    saved, read = made("hpu")
    expected, _ = made("cpu")
    before = {name: type(one) for name, one in saved.items()}
    HPUCheckpointIO().save_checkpoint(saved, tmp_path / "held.ckpt")
    loaded = torch.load(tmp_path / "held.ckpt", weights_only=False)
    assert {name: type(one) for name, one in loaded.items()} == before
    assert loaded["counts"].default_factory is list
    assert loaded["deque"].maxlen == 2
    for name, tensors in read.items():
        for mine, theirs in zip(tensors(loaded), tensors(expected), strict=True):
            assert (mine.device.type, type(mine)) == ("cpu", type(theirs)), name
            assert mine.requires_grad == theirs.requires_grad, name
            assert torch.equal(mine, theirs), name
        kinds = {one.device.type for one in tensors(saved) if name != "number"}
        assert kinds <= {"hpu"}, name
    shared = {
        tensors(loaded)[-1].data_ptr()
        for name, tensors in read.items()
        if name not in ("class", "number")
    }
    assert len(shared) == 1  # one tensor stays one, whatever holds it


def numpy_array_of(value: Any) -> Any:
    import numpy as np

    array = np.empty(1, dtype=object)
    array[0] = value
    return array


def test_storages_are_saved_as_torch_saves_them(torch: Any, lightning: Any, tmp_path: Path) -> None:
    from hpu_magic.lightning import HPUCheckpointIO

    x = torch.arange(3.0, device="hpu")
    path = tmp_path / "storages.ckpt"
    HPUCheckpointIO().save_checkpoint({"raw": x.untyped_storage(), "typed": x.storage()}, path)
    read = torch.load(path, weights_only=False)
    assert bytes(read["raw"]) == bytes(x.cpu().untyped_storage())
    assert list(read["typed"]) == [0.0, 1.0, 2.0]


def test_conjugate_and_negative_views_are_saved_with_their_values(
    torch: Any, lightning: Any, tmp_path: Path
) -> None:
    from hpu_magic.lightning import HPUCheckpointIO

    z = torch.tensor([1 + 2j, 3 - 4j], device="hpu")
    x = torch.arange(3.0, device="hpu")
    views = {
        "plain": z,
        "conjugate": z.conj(),
        "imaginary": z.imag,
        "negative": z.conj().imag,
        "real": x,
        "negated": torch._neg_view(x),
        "conjugate parameter": torch.nn.Parameter(z).conj(),
    }
    assert views["negative"].is_neg()
    HPUCheckpointIO().save_checkpoint(views, tmp_path / "views.ckpt")
    loaded = torch.load(tmp_path / "views.ckpt", weights_only=False)
    assert {name: one.tolist() for name, one in loaded.items()} == {
        "plain": [1 + 2j, 3 - 4j],
        "conjugate": [1 - 2j, 3 + 4j],
        "imaginary": [2.0, -4.0],
        "negative": [-2.0, 4.0],
        "real": [0.0, 1.0, 2.0],
        "negated": [0.0, -1.0, -2.0],
        "conjugate parameter": [1 - 2j, 3 + 4j],
    }


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
