"""Training of CLIP, which compares images with texts."""

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

torch.manual_seed(0)
small = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
text = CLIPTextConfig(vocab_size=90, max_position_embeddings=12, eos_token_id=89, **small)
vision = CLIPVisionConfig(image_size=32, patch_size=8, **small)
model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict())).to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens, images = torch.randint(0, 90, (4, 12)), torch.rand(4, 3, 32, 32)
    loss = model(input_ids=tokens.to("hpu"), pixel_values=images.to("hpu"), return_loss=True).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
