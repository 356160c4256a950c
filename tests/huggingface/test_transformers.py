"""Models of transformers on the device: losses, gradients' effect and logits of the CPU."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import MODELS, llama, tokens

ALL = "HPU_MAGIC_TEST_ALL_MODELS" in os.environ
TYPES = [torch.float32, torch.bfloat16] if ALL else [torch.float32]
WITHIN = {torch.float32: 1e-4, torch.bfloat16: 8e-2}


@pytest.fixture(autouse=True)
def _device(shell):
    return shell


def trained(name: str, device: str, dtype: torch.dtype) -> tuple[list[float], torch.Tensor]:
    """Return the losses of three steps, and the logits afterwards."""
    make, batch = MODELS[name]
    torch.manual_seed(0)
    model = make().to(dtype).to(device).train()
    inputs = {
        key: value.to(device, dtype if value.is_floating_point() else None)
        for key, value in batch().items()
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(3):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with torch.inference_mode():
        return losses, model.eval()(**inputs).logits.float().cpu()


def assert_trains_as_on_the_cpu(name: str, dtype: torch.dtype) -> None:
    losses, logits = trained(name, "hpu", dtype)
    expected_losses, expected = trained(name, "cpu", dtype)
    assert abs(expected_losses[0] - expected_losses[2]) > 1e-2, "nothing was learned"
    assert losses == pytest.approx(expected_losses, abs=WITHIN[dtype])
    torch.testing.assert_close(logits, expected, atol=WITHIN[dtype], rtol=WITHIN[dtype])


@proves(TRANSFORMERS, "Llama, GPT-2: training step and inference")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_decoders(name, dtype):
    assert_trains_as_on_the_cpu(name, dtype)


@proves(TRANSFORMERS, "BERT, ViT: training step and inference")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["BERT", "ViT"])
def test_encoders(name, dtype):
    assert_trains_as_on_the_cpu(name, dtype)


@proves(TRANSFORMERS, "T5, Whisper: training step and inference")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["T5", "Whisper"])
def test_encoders_with_decoders(name, dtype):
    assert_trains_as_on_the_cpu(name, dtype)


@proves(TRANSFORMERS, "Mixtral, Qwen2-MoE (mixtures of experts): training step and inference")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["Mixtral", "Qwen2-MoE"])
def test_mixtures_of_experts(name, dtype):
    assert_trains_as_on_the_cpu(name, dtype)


@proves(TRANSFORMERS, "Llava (text with images): training step and inference")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_text_with_pictures(dtype):
    assert_trains_as_on_the_cpu("Llava", dtype)


COMPILED = pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="it is compiled")


@proves(TRANSFORMERS, "attention: eager, SDPA, flex")
@pytest.mark.usefixtures("compile_on_hpu")
@pytest.mark.parametrize(
    "attention", ["eager", "sdpa", pytest.param("flex_attention", marks=COMPILED)]
)
def test_attention(attention):
    from transformers.utils import is_torch_hpu_available

    assert is_torch_hpu_available()  # has the library compile for the device where it names none
    logits = []
    for implementation, device in ((attention, "hpu"), ("eager", "cpu")):
        torch.manual_seed(0)
        model = llama(attn_implementation=implementation).to(device).eval()
        assert model.config._attn_implementation == implementation
        with torch.inference_mode():
            logits.append(model(tokens().to(device)).logits.cpu())
    torch.testing.assert_close(*logits, atol=1e-6, rtol=1e-5)
