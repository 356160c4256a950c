"""Models of transformers on the device: losses and logits equal the CPU's."""

import os

import pytest

pytest.importorskip("transformers")

import torch
from features import TRANSFORMERS, proves
from tiny_models import MODELS, llama, losses_of, tokens

ALL = "HPU_MAGIC_TEST_ALL_MODELS" in os.environ
TYPES = [torch.float32, torch.bfloat16] if ALL else [torch.float32]
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 8e-2}


def trained(name, device, dtype):
    """Return the losses of three steps, and the logits afterwards."""
    make, batch = MODELS[name]
    torch.manual_seed(0)
    model = make().to(dtype).to(device).train()
    inputs = {
        key: value.to(device, dtype if value.is_floating_point() else None)
        for key, value in batch().items()
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = losses_of(model, inputs, optimizer)
    with torch.inference_mode():
        return losses, model.eval()(**inputs).logits.float().cpu()


@proves(
    TRANSFORMERS,
    "Llama, GPT-2: training step and inference",
    "BERT, ViT: training step and inference",
    "T5, Whisper: training step and inference",
    "Mixtral, Qwen2-MoE (mixtures of experts): training step and inference",
    "Llava (text with images): training step and inference",
)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_training_and_inference_equal_the_cpu(name, dtype):
    losses, logits = trained(name, "hpu", dtype)
    expected_losses, expected = trained(name, "cpu", dtype)
    assert abs(expected_losses[0] - expected_losses[2]) > 1e-2, "nothing was learned"
    assert losses == pytest.approx(expected_losses, abs=TOLERANCES[dtype])
    torch.testing.assert_close(logits, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


COMPILED = pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="no compile backend")


@proves(TRANSFORMERS, "attention: eager, SDPA, flex")
@pytest.mark.usefixtures("compile_on_hpu")
@pytest.mark.parametrize(
    "attention", ["eager", "sdpa", pytest.param("flex_attention", marks=COMPILED)]
)
def test_each_attention_implementation_equals_the_cpu(attention):
    from transformers.utils import is_torch_hpu_available

    assert is_torch_hpu_available()  # transformers then compiles for the device
    logits = []
    for implementation, device in ((attention, "hpu"), ("eager", "cpu")):
        torch.manual_seed(0)
        model = llama(attn_implementation=implementation).to(device).eval()
        assert model.config._attn_implementation == implementation
        with torch.inference_mode():
            logits.append(model(tokens().to(device)).logits.cpu())
    torch.testing.assert_close(*logits, atol=1e-6, rtol=1e-5)
