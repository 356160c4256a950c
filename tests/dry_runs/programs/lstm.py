"""A recurrent network on packed sequences, whose sizes are read from host data."""

import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 24, padding_idx=0)
        self.lstm = nn.LSTM(24, 32, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(64, 16, batch_first=True)
        self.head = nn.Linear(16, 7)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embedding(tokens))
        hidden, _ = self.gru(hidden)
        return self.head(hidden)


model = Tagger().to("hpu")
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for _ in range(3):
    lengths = torch.randint(5, 20, (6,))
    tokens = torch.randint(1, 100, (6, 20)).to("hpu")
    mask = torch.arange(20, device="hpu") < lengths.to("hpu").unsqueeze(1)
    scores = model(tokens)[mask]
    tags = torch.randint(0, 7, (int(mask.sum()),), device="hpu")
    loss = nn.functional.cross_entropy(scores, tags)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), scores.shape[0] == int(lengths.sum()))
