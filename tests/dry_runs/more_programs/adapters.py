"""LoRA adapters of a Llama model."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=160,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
model = get_peft_model(LlamaForCausalLM(config), adapters).to("hpu")
optimizer = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
for _ in range(3):
    tokens = torch.randint(0, 160, (2, 24)).to("hpu")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
