"""Greedy generation with GPT-2."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(vocab_size=150, n_positions=64, n_embd=32, n_layer=2, n_head=2)
model = GPT2LMHeadModel(config).eval().to("hpu")
prompt = torch.randint(0, 150, (2, 7)).to("hpu")
mask = torch.ones_like(prompt)
found = model.generate(
    prompt,
    attention_mask=mask,
    max_new_tokens=8,
    do_sample=False,
    eos_token_id=None,
    pad_token_id=0,
)
print(found.shape)
