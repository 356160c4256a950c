"""Training of ViTForImageClassification from transformers."""

import torch
from transformers import ViTConfig, ViTForImageClassification

torch.manual_seed(0)
config = ViTConfig(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    image_size=32,
    patch_size=8,
    num_labels=5,
)
model = ViTForImageClassification(config).to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    images, labels = torch.rand(4, 3, 32, 32).to("hpu"), torch.randint(0, 5, (4,)).to("hpu")
    loss = model(pixel_values=images, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
