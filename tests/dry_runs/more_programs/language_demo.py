"""Lightning's demo transformer, trained with Fabric."""

import torch
from lightning.fabric import Fabric
from lightning.pytorch.demos.transformer import Transformer

import hpu_magic.lightning  # noqa: F401 (adds the accelerator)

torch.manual_seed(0)
fabric = Fabric(accelerator="hpu", devices=1)
fabric.launch()
model = Transformer(vocab_size=80, ninp=32, nhead=2, nhid=48, nlayers=2)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(3):
    tokens = fabric.to_device(torch.randint(0, 80, (4, 12)))
    scores = model(tokens, tokens)
    loss = torch.nn.functional.nll_loss(scores, tokens.flatten())
    optimizer.zero_grad()
    fabric.backward(loss)
    fabric.clip_gradients(model, optimizer, max_norm=0.25)
    optimizer.step()
    print(loss.item())
