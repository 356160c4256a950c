"""Training of T5ForConditionalGeneration from transformers."""

import torch
from transformers import T5Config, T5ForConditionalGeneration

torch.manual_seed(0)
config = T5Config(
    vocab_size=120, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
)
model = T5ForConditionalGeneration(config).to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    text, summary = (
        torch.randint(1, 120, (3, 20)).to("hpu"),
        torch.randint(1, 120, (3, 8)).to("hpu"),
    )
    loss = model(input_ids=text, labels=summary).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
