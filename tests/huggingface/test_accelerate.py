"""Test accelerate on one card against the CPU: loops, states, hooks and offload."""

import os

import pytest

pytest.importorskip("accelerate")

import torch
from features import ACCELERATE, proves
from tiny_models import llama, tokens
from torch import nn
from two_cards import reset_state

from hpu_magic.simulator.cards import driver


@pytest.fixture(autouse=True)
def _new_state(shell):
    reset_state()
    yield
    reset_state()


class Loop:
    """A training loop of a few steps, prepared by an `Accelerator`."""

    def __init__(self, **options):
        from accelerate import Accelerator

        reset_state()
        torch.manual_seed(0)
        self.accelerator = Accelerator(**options)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.arange(32) % 2)
        loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
        prepared = self.accelerator.prepare(model, optimizer, loader, scheduler)
        self.model, self.optimizer, self.loader, self.scheduler = prepared
        self.losses: list[float] = []
        self.steps = 0

    def run(self):
        for inputs, labels in self.loader:
            with self.accelerator.accumulate(self.model):
                outputs = self.model(inputs)
                loss = nn.functional.cross_entropy(outputs, labels)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.steps += 1
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.losses.append(loss.item())
        self.device = outputs.device.type
        return self


def assert_equals_the_cpu(tolerance, **options):
    found, expected = Loop(**options).run(), Loop(cpu=True, **options).run()
    assert (found.device, expected.device) == ("hpu", "cpu")
    assert found.losses == pytest.approx(expected.losses, abs=tolerance)
    assert found.scheduler.get_last_lr() == expected.scheduler.get_last_lr()
    return found


@proves(ACCELERATE, "`Accelerator`: `prepare`, `backward`, clipping, scheduler")
def test_loop_equals_the_cpu():
    found = assert_equals_the_cpu(1e-5)
    assert found.steps == len(found.losses) == 8
    assert len(set(found.losses)) == 8


@proves(ACCELERATE, "mixed precision bf16, fp16")
@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 1e-2), ("fp16", 2e-3)])
def test_mixed_precision_is_close_to_the_cpu(precision, tolerance):
    plain = Loop(cpu=True).run().losses
    found = Loop(mixed_precision=precision).run()
    assert found.losses == pytest.approx(plain, abs=tolerance)
    assert found.losses != pytest.approx(plain, abs=1e-6), "nothing was rounded"


@proves(ACCELERATE, "gradient accumulation")
def test_accumulated_gradients_equal_the_cpu():
    assert assert_equals_the_cpu(1e-5, gradient_accumulation_steps=3).steps == 3


@proves(ACCELERATE, "`save_state`, `load_state`, with random number generators")
def test_saved_state_is_restored(tmp_path):
    loop = Loop().run()
    loop.accelerator.save_state(tmp_path)
    assert {"model.safetensors", "random_states_0.pkl"} <= set(os.listdir(tmp_path))
    weights = {name: each.clone() for name, each in loop.model.state_dict().items()}
    drawn = torch.rand(3, device="hpu").cpu(), torch.rand(3)
    restored = Loop().run().run()
    restored.accelerator.load_state(tmp_path)
    assert torch.equal(torch.rand(3, device="hpu").cpu(), drawn[0])
    assert torch.equal(torch.rand(3), drawn[1])
    assert restored.scheduler.get_last_lr() == loop.scheduler.get_last_lr()
    for name, weight in restored.model.state_dict().items():
        assert weight.device.type == "hpu"
        assert torch.equal(weight, weights[name]), name


@pytest.fixture
def model():
    torch.manual_seed(0)
    return llama().eval()


def assert_equals(model, expected, kept):
    with torch.inference_mode():
        found = model(tokens().to("hpu")).logits
    assert {str(each.device) for each in model.parameters()} == kept
    torch.testing.assert_close(found.cpu(), expected, atol=1e-6, rtol=1e-5)


@proves(ACCELERATE, "offload to the host and to disk")
@pytest.mark.parametrize("to", ["host", "disk"])
def test_offloaded_model_equals_the_cpu(model, tmp_path, to):
    from accelerate import cpu_offload, disk_offload

    expected = model(tokens()).logits.detach()
    if to == "host":
        cpu_offload(model, execution_device="hpu")
    else:
        disk_offload(model, str(tmp_path), execution_device="hpu")
    assert_equals(model, expected, {"meta"})


@proves(ACCELERATE, "offload to the host and to disk")
def test_offload_hook_moves_a_model_to_the_card_and_back():
    from accelerate import cpu_offload_with_hook

    layer, hook = cpu_offload_with_hook(nn.Linear(2, 2), execution_device="hpu")
    assert layer(torch.ones(1, 2)).device.type == "hpu"
    assert layer.weight.device.type == "hpu"
    hook.offload()
    assert layer.weight.device.type == "cpu"


@proves(ACCELERATE, "`init_empty_weights`, `load_checkpoint_and_dispatch`")
def test_checkpoint_is_dispatched_to_card_host_and_disk(model, tmp_path):
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch

    expected = model(tokens()).logits.detach()
    model.save_pretrained(tmp_path / "checkpoint")
    with init_empty_weights():
        empty = llama()
    places = dict.fromkeys(["model.embed_tokens", "model.layers.0", "lm_head"], "hpu")
    places |= {"model.rotary_emb": "hpu", "model.layers.1": "cpu", "model.norm": "disk"}
    dispatched = load_checkpoint_and_dispatch(
        empty, tmp_path / "checkpoint", device_map=places, offload_folder=tmp_path / "offload"
    )
    assert_equals(dispatched.eval(), expected, {"hpu:0", "meta"})


@proves(ACCELERATE, "device map that names a second card as number 1")
def test_device_numbers_refer_to_the_only_card(model):
    from accelerate import dispatch_model

    expected = model(tokens()).logits.detach()
    second = driver.acquire().module_id + 1
    spread = dispatch_model(model, {"model": 0, "lm_head": second})
    assert {str(each.device) for each in spread.parameters()} == {"hpu:0"}
    with pytest.raises(RuntimeError, match="start another process to use another card"):
        assert_equals(spread, expected, {"hpu:0"})


@proves(ACCELERATE, "`find_executable_batch_size`")
def test_batch_size_is_reduced_until_it_fits():
    from accelerate.utils import find_executable_batch_size

    sizes = []

    @find_executable_batch_size(starting_batch_size=128)
    def fill(batch_size):
        sizes.append(batch_size)
        if batch_size > 100:
            torch.zeros(batch_size, 1 << 30, dtype=torch.uint8, device="hpu")
            torch.hpu.synchronize()
        return batch_size

    assert fill() == sizes[-1] <= 100 < sizes[-2]


@proves(ACCELERATE, "`gather`, `reduce`, `profile`")
def test_one_process_gathers_reduces_and_profiles():
    from accelerate import Accelerator
    from accelerate.utils import ProfileKwargs

    accelerator = Accelerator(kwargs_handlers=[ProfileKwargs(activities=["cpu", "hpu"])])
    numbers = torch.arange(3.0, device=accelerator.device)
    for collect in (accelerator.gather, accelerator.gather_for_metrics, accelerator.reduce):
        assert collect(numbers).device.type == "hpu"
        assert collect(numbers).tolist() == [0, 1, 2]
    with accelerator.profile() as profile:
        numbers @ numbers
    assert any("dot" in event.key for event in profile.key_averages())


@proves(ACCELERATE, "`dynamo_backend`")
@pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="lazy mode has no compile backend")
def test_compiled_loop_equals_the_cpu(compilations):
    found, expected = Loop(dynamo_backend="hpu_backend").run(), Loop(cpu=True).run()
    assert compilations() > 0
    assert found.losses == pytest.approx(expected.losses, abs=1e-5)
