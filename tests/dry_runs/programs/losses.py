"""Losses, embedding bags and gradients of windows; some CPU kernels return larger storages."""

import torch
from torch.nn import functional

torch.manual_seed(0)
x, y = torch.rand(2, 256, 512).to("hpu")
losses = [
    getattr(functional, name)(x, y, reduction=reduction)
    for name in ("mse_loss", "smooth_l1_loss", "binary_cross_entropy", "soft_margin_loss")
    for reduction in ("mean", "sum")
]
table = torch.nn.EmbeddingBag(1000, 16, mode="sum", padding_idx=0, device="hpu")
bags = table(torch.arange(600, device="hpu"), torch.arange(0, 600, 3, device="hpu"))
signal = torch.rand(4, 8, 100).to("hpu").requires_grad_()
signal.unfold(2, 5, 2).square().mean().backward()
image = torch.rand(2, 3, 20, 20).to("hpu").requires_grad_()
functional.unfold(image, 3).square().mean().backward()
bags.mean().backward()
last = torch.zeros(1 << 20, device="hpu")
print(torch.stack(losses).sum().item())
