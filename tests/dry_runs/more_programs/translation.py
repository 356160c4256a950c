"""An encoder and a decoder of GRU cells with attention and teacher forcing."""

import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(50, 32)
        self.target = nn.Embedding(60, 32)
        self.encoder = nn.GRU(32, 32, batch_first=True)
        self.cell = nn.GRUCell(64, 32)
        self.head = nn.Linear(32, 60)

    def forward(self, sentence, expected):
        memory, hidden = self.encoder(self.source(sentence))
        hidden, word, scores = hidden[0], expected[:, 0], []
        for position in range(1, expected.shape[1]):
            weights = (memory @ hidden.unsqueeze(2)).softmax(1)
            context = (weights * memory).sum(1)
            hidden = self.cell(torch.cat([self.target(word), context], 1), hidden)
            scores.append(self.head(hidden))
            word = expected[:, position] if random.random() < 0.5 else scores[-1].argmax(1)
        return torch.stack(scores, 1)


model = Translator().to("hpu")
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    sentence = torch.randint(0, 50, (4, 9)).to("hpu")
    expected = torch.randint(0, 60, (4, 7)).to("hpu")
    scores = model(sentence, expected)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), expected[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
