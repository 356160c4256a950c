"""Message passing between the nodes of a random graph."""

import torch
from torch import nn

torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, nodes, edges):
        source, target = edges
        messages = self.other(nodes)[source]
        received = torch.zeros(len(nodes), messages.shape[1], device=nodes.device)
        received = received.index_add(0, target, messages)
        degree = torch.zeros(len(nodes), 1, device=nodes.device)
        degree.scatter_add_(0, target.unsqueeze(1), torch.ones(len(target), 1, device=nodes.device))
        return self.own(nodes) + received / degree.clamp(min=1)


edges = torch.randint(0, 60, (2, 300)).to("hpu")
nodes, labels = torch.randn(60, 16).to("hpu"), torch.randint(0, 3, (60,)).to("hpu")
trained = (torch.arange(60) < 40).to("hpu")
model = nn.ModuleList([Layer(16, 32), Layer(32, 3)]).to("hpu")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(4):
    hidden = model[0](nodes, edges).relu()
    scores = model[1](nn.functional.dropout(hidden, 0.3), edges)
    loss = nn.functional.cross_entropy(scores[trained], labels[trained])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
