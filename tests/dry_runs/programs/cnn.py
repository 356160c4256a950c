"""A convolutional network in the channels-last format with SGD, and its evaluation."""

import torch
from torch import nn


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


torch.manual_seed(0)
model = nn.Sequential(
    block(3, 16, 1),
    block(16, 32, 2),
    nn.MaxPool2d(2),
    nn.Dropout(0.1),
    nn.Flatten(),
    nn.LazyLinear(5),
)
model(torch.zeros(2, 3, 32, 32))
model.to("hpu", memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    x = torch.randn(8, 3, 32, 32).to(memory_format=torch.channels_last).to("hpu")
    y = torch.randint(0, 5, (8,), device="hpu")
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    scores = model(torch.randn(32, 3, 32, 32, device="hpu")).softmax(-1)
print(scores.cpu().sum().item(), scores.topk(2).indices.cpu().shape)
