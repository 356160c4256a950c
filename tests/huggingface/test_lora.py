"""Test LoRA of peft on the device."""

import pytest

pytest.importorskip("peft")

import torch
from features import PEFT, proves
from tiny_models import llama, losses_of, text, tokens


def adapted():
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    options = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return get_peft_model(llama(), LoraConfig(r=4, lora_alpha=8, **options))


def trained(model, device):
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(parameters, 1e-2)
    batch = {name: each.to(device) for name, each in text().items()}
    return losses_of(model, batch, optimizer)


@proves(PEFT, "LoRA: training step, saving, loading, merging, `%hpu_to`")
def test_adapters_train_and_are_restored(shell, run, tmp_path):
    from peft import PeftModel

    shell.user_ns["model"] = model = adapted()
    assert run("%hpu_to model").error is None
    assert shell.user_ns["model"] is model
    expected = trained(adapted(), "cpu")
    assert trained(model, "hpu") == pytest.approx(expected, abs=1e-5)
    assert expected[0] - expected[2] > 1e-2
    model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    restored = PeftModel.from_pretrained(llama().to("hpu"), tmp_path)
    assert {str(each.device) for each in restored.parameters()} == {"hpu:0"}
    with torch.inference_mode():
        found = model(tokens().to("hpu")).logits
        assert torch.equal(restored(tokens().to("hpu")).logits, found)
        merged = restored.merge_and_unload()(tokens().to("hpu")).logits
    torch.testing.assert_close(merged, found, atol=1e-6, rtol=1e-5)
