"""Per-sample gradients and a Hessian-vector product with torch.func."""

import torch
from torch import nn
from torch.func import functional_call, grad, jvp, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)).to("hpu")
weights = {name: each.detach() for name, each in model.named_parameters()}


def loss(weights, sample, target):
    return (functional_call(model, weights, (sample.unsqueeze(0),)).squeeze() - target) ** 2


samples, targets = torch.randn(8, 6, device="hpu"), torch.randn(8, device="hpu")
for _ in range(3):
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, samples, targets)
    print({name: tuple(each.shape) for name, each in gradients.items()})
    direction = {name: torch.ones_like(each) for name, each in weights.items()}
    whole = grad(lambda each: vmap(loss, in_dims=(None, 0, 0))(each, samples, targets).mean())
    _, product = jvp(whole, (weights,), (direction,))
    print(sum(each.sum() for each in product.values()).item())
