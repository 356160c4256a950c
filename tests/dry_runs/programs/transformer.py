"""A language model with a causal mask, checkpointing, mixed precision and accumulated gradients."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self, tokens=500, width=64, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, padding):
        x = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=x.device)
        for layer in self.layers:
            x = checkpoint(layer, x, mask, padding, use_reentrant=False)
        return self.head(x)


torch.manual_seed(0)
model = Model().to("hpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
for step in range(6):
    tokens = torch.randint(1, 500, (4, 33))
    tokens[0, 20:] = 0
    tokens = tokens.to("hpu")
    padding = torch.zeros(4, 32, device="hpu").masked_fill(tokens[:, :-1] == 0, float("-inf"))
    assert not padding.isnan().any()
    with torch.autocast("hpu", dtype=torch.bfloat16):
        out = model(tokens[:, :-1], padding)
        loss = nn.functional.cross_entropy(
            out.flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=0
        )
    (loss / 2).backward()
    if step % 2:
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
print(loss.item(), (tokens != 0).sum().item(), tokens.max().item())
