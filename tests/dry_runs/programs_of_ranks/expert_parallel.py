"""Training of experts that are distributed across ranks, all selected equally often."""

import gc
import sys

import habana_frameworks.torch  # noqa: F401
import torch
import torch.distributed as dist

EXPERTS, CHOICES, TOKENS, WIDTH = 8, 2, 256, 64


class Exchange(torch.autograd.Function):
    """Send rows to the ranks that hold their experts, or back."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        """Return the received rows."""
        ctx.sizes = received, sent
        result = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(result, rows.contiguous(), received, sent)
        return result

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradients of the sent rows."""
        return Exchange.apply(gradient, *ctx.sizes), None, None


class Experts(torch.nn.Module):
    """The experts of one rank."""

    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.own = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS // ranks)
        )
        rows, columns = torch.arange(TOKENS)[:, None], torch.arange(EXPERTS)
        self.register_buffer("preference", (rows + columns) % EXPERTS * 100.0)

    def forward(self, tokens):
        """Return the results of each token's experts."""
        scores = self.router(tokens).tanh() + self.preference
        weights, chosen = scores.softmax(-1).topk(CHOICES)
        order = chosen.flatten().argsort()
        counts = chosen.flatten().bincount(minlength=EXPERTS)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts)
        sent = counts.view(self.ranks, -1).sum(1).tolist()
        received = coming.view(self.ranks, -1).sum(1).tolist()
        rows = Exchange.apply(tokens[order // CHOICES], sent, received)
        parts = rows.split(coming.tolist())
        results = [self.own[at % len(self.own)](part) for at, part in enumerate(parts)]
        rows = Exchange.apply(torch.cat(results), received, sent)
        weighted = rows * weights.flatten()[order, None]
        return torch.zeros_like(tokens).index_add(0, order // CHOICES, weighted)


dist.init_process_group("hccl")
torch.manual_seed(0)
model = Experts(dist.get_world_size()).to("hpu")
if "compiled" in sys.argv:
    gc.disable()  # the compiler's cycles would be freed at different times
    model.compile(backend="hpu_backend")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(TOKENS, WIDTH).to("hpu")).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
