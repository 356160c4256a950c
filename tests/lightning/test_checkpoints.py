"""Test checkpoints that move between the card and machines without one, and resumed fits."""

import copy
import dataclasses
import functools
import signal
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from steps import logged, same_weights

LOAD_WITHOUT_DEVICE = """
import os
import torch
assert not hasattr(torch, "hpu"), "this process must have no hpu"
checkpoint = torch.load(os.environ["CHECKPOINT"], weights_only=True)
tensors = list(checkpoint["state_dict"].values())
tensors += [each["momentum_buffer"] for each in checkpoint["optimizer_states"][0]["state"].values()]
print({each.device.type for each in tensors}, len(tensors))
"""


def test_fit_resumes_on_another_device(trainer, net, loader, tmp_path, torch):
    uninterrupted = net()
    trainer("cpu", max_epochs=4).fit(uninterrupted, loader(shuffle=False))
    for first, second in (("hpu", "cpu"), ("cpu", "hpu")):
        path = tmp_path / f"{first}.ckpt"
        begun, resumed = net(), net()
        run = trainer(first, max_epochs=2)
        run.fit(begun, loader(shuffle=False))
        run.save_checkpoint(path)
        later = trainer(second, max_epochs=4)
        later.fit(resumed, loader(shuffle=False), ckpt_path=path)
        assert {device for _, device, _ in resumed.seen} == {second}
        same_weights(resumed, uninterrupted, rtol=0, atol=0)
        assert later.lr_scheduler_configs[0].scheduler.get_last_lr() == [0.1 * 0.5**2]
        loaded = net.load_from_checkpoint(path, map_location="hpu")
        assert {value.device.type for value in loaded.state_dict().values()} == {"hpu"}
        same_weights(loaded, begun, rtol=0, atol=0)


def test_checkpoint_loads_in_a_process_without_the_device(
    trainer, net, loader, tmp_path, monkeypatch, forked_script
):
    run = trainer("hpu", max_epochs=1)
    run.fit(net(), loader())
    path = str(tmp_path / "model.ckpt")
    run.save_checkpoint(path)
    for variable in ("HPU_MAGIC_SIMULATOR", "PT_HPU_LAZY_MODE"):
        monkeypatch.delenv(variable, raising=False)
    out = forked_script(LOAD_WITHOUT_DEVICE, TORCH_DEVICE_BACKEND_AUTOLOAD="0", CHECKPOINT=path)
    assert out == "{'cpu'} 15\n"


def test_interrupted_fit_resumes_like_on_the_cpu(
    lightning, trainer, net, loader, tmp_path, monkeypatch
):
    class Interrupt(lightning.Callback):
        def on_train_batch_start(self, run, *_):
            if run.global_step == 6:
                raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)  # otherwise Lightning ignores interrupts
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


@pytest.fixture
def saved(torch, lightning, tmp_path):
    """A function that writes a checkpoint, and reads it without the plug-in."""
    from hpu_magic.lightning import HPUCheckpointIO

    def save_and_load(values):
        HPUCheckpointIO().save_checkpoint(values, tmp_path / "saved.ckpt")
        return torch.load(tmp_path / "saved.ckpt", weights_only=False)

    return save_and_load


def test_shared_tensors_stay_shared(torch, saved, tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)
    ).to("hpu")
    model[1].weight = model[0].weight
    state = model.state_dict()
    loaded = saved({"state": state, "parts": [state["0.bias"][:3], (1, "two")]})
    assert type(loaded["state"]) is OrderedDict
    assert loaded["state"]._metadata == state._metadata
    weights = [loaded["state"][name] for name in ("0.weight", "1.weight")]
    assert weights[0].data_ptr() == weights[1].data_ptr()
    assert torch.equal(weights[0], model[0].weight.detach().cpu())
    assert loaded["parts"][1] == (1, "two")
    assert torch.equal(loaded["parts"][0], state["0.bias"][:3].cpu())
    assert {value.device.type for value in state.values()} == {"hpu"}
    assert (tmp_path / "saved.ckpt").stat().st_size < 1.5 * 64 * 64 * 4


def test_shared_attributes_of_tensors_stay_shared(torch, saved):
    shared = Running(None)
    tensors = [torch.ones(2, device="hpu") for _ in range(2)]
    for tensor in tensors:
        tensor.shared = shared
    shared.total = tensors[0]  # a cycle: its attribute is `shared`
    loaded = saved({"shared": shared, "tensors": tensors})
    assert all(tensor.shared is loaded["shared"] for tensor in loaded["tensors"])
    assert loaded["shared"].total is loaded["tensors"][0]
    assert {tensor.device.type for tensor in loaded["tensors"]} == {"cpu"}
    assert {tensor.device.type for tensor in tensors} == {"hpu"}


@dataclasses.dataclass
class Running:
    total: Any
    name: str = "loss"


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor):
        self.tensor = tensor


class OwnMapping(Mapping[str, Any]):
    def __init__(self, **items):
        self._items = items

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


def test_tensors_in_all_kinds_of_containers_are_copied_to_the_host(torch, saved):
    class Marked(torch.Tensor):
        pass

    globals()["Marked"] = Marked  # pickle finds classes by name
    Marked.__qualname__ = "Marked"

    def create(device):
        tensor = torch.arange(3.0, device=device)
        marked = tensor.clone().as_subclass(Marked)
        marked.scale = torch.ones(1, device=device)
        module = torch.nn.Linear(2, 1).to(device)
        torch.nn.init.ones_(module.weight)
        module.loss = Running(tensor)
        return {
            "dataclass": (Running(tensor), lambda it: [it.total]),
            "ordered": (OrderedDict(a=tensor), lambda it: [it["a"]]),
            "lists": (defaultdict(list, {"a": [tensor]}), lambda it: it["a"]),
            "deque": (deque([tensor], maxlen=2), list),
            "set": ({tensor}, list),
            "frozen set": (frozenset([tensor]), list),
            "mapping": (OwnMapping(a=tensor), lambda it: [it["a"]]),
            "user dict": (UserDict(a=tensor), lambda it: [it["a"]]),
            "slots": (Slotted(tensor), lambda it: [it.tensor]),
            "namespace": (SimpleNamespace(a={"b": [tensor]}), lambda it: it.a["b"]),
            "array": (numpy_array_of(tensor), lambda it: [it[0]]),
            "partial": (functools.partial(max, tensor), lambda it: list(it.args)),
            "module": (module, lambda it: [it.weight, it.loss.total]),
            "parameter": (torch.nn.Parameter(tensor), lambda it: [it]),
            "class": (marked, lambda it: [it, it.scale]),
            "number": (7, lambda it: [torch.tensor(it)]),
        }

    containers, expected = create("hpu"), create("cpu")
    values = {name: container for name, (container, _) in containers.items()}
    loaded = saved(values)
    assert list(map(type, loaded.values())) == list(map(type, values.values()))
    assert loaded["lists"].default_factory is list
    assert loaded["deque"].maxlen == 2
    for name, (container, tensors) in containers.items():
        for ours, theirs in zip(tensors(loaded[name]), tensors(expected[name][0]), strict=True):
            assert (ours.device.type, type(ours)) == ("cpu", type(theirs)), name
            assert ours.requires_grad == theirs.requires_grad, name
            assert torch.equal(ours, theirs), name
        if name != "number":
            assert {each.device.type for each in tensors(container)} == {"hpu"}, name
    shared = {
        tensors(loaded[name])[-1].data_ptr()
        for name, (_, tensors) in containers.items()
        if name not in ("class", "number")
    }
    assert len(shared) == 1  # all containers still share one tensor


def numpy_array_of(value):
    import numpy as np

    array = np.empty(1, dtype=object)
    array[0] = value
    return array


def test_storages_are_saved_like_with_torch_save(torch, saved):
    x = torch.arange(3.0, device="hpu")
    read = saved({"raw": x.untyped_storage(), "typed": x.storage()})
    assert bytes(read["raw"]) == bytes(x.cpu().untyped_storage())
    assert list(read["typed"]) == [0.0, 1.0, 2.0]


def test_conjugate_and_negative_views_are_saved_with_their_values(torch, saved):
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
    values = {name: view.tolist() for name, view in views.items()}
    assert values["negative"] == [-2.0, 4.0]
    assert {name: each.tolist() for name, each in saved(views).items()} == values


def test_checkpoints_are_written_by_the_specified_plug_in(
    lightning, trainer, net, loader, torch, tmp_path
):
    from hpu_magic.lightning import HPUCheckpointIO, SingleHPUStrategy

    plugins = lightning.plugins
    writer = HPUCheckpointIO()
    run = trainer("hpu", strategy=SingleHPUStrategy(), plugins=[writer])
    assert run.strategy.checkpoint_io is writer
    run = trainer("hpu", strategy=SingleHPUStrategy(checkpoint_io=writer))
    assert run.strategy.checkpoint_io is writer
    asynchronous = plugins.AsyncCheckpointIO()
    run = trainer("hpu", max_epochs=1, plugins=[asynchronous])
    model = net()
    run.fit(model, loader())
    run.save_checkpoint(tmp_path / "async.ckpt")
    asynchronous.teardown()
    assert isinstance(asynchronous.checkpoint_io, HPUCheckpointIO)
    state = torch.load(tmp_path / "async.ckpt", weights_only=False)["state_dict"]
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert torch.equal(state["head.weight"], model.head.weight.detach().cpu())
