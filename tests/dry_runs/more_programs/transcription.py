"""Training of WhisperForConditionalGeneration from transformers."""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=120,
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    num_mel_bins=16,
    max_source_positions=50,
    max_target_positions=24,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)
model = WhisperForConditionalGeneration(config).to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    sound, text = torch.randn(2, 16, 100).to("hpu"), torch.randint(3, 120, (2, 10)).to("hpu")
    loss = model(input_features=sound, labels=text).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
