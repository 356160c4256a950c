"""A small U-Net with skip connections and a Dice loss."""

import torch
from torch import nn

torch.manual_seed(0)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.middle = block(3, 16), block(16, 32), block(32, 32)
        self.up, self.last = block(64, 16), nn.Conv2d(32, 1, 1)

    def forward(self, images):
        first = self.first(images)
        second = self.second(nn.functional.max_pool2d(first, 2))
        middle = self.middle(nn.functional.avg_pool2d(second, 2))
        middle = nn.functional.interpolate(middle, scale_factor=2, mode="nearest")
        up = self.up(torch.cat([middle, second], 1))
        up = nn.functional.interpolate(up, scale_factor=2, mode="bilinear", align_corners=False)
        return self.last(torch.cat([up, first], 1))


model = UNet().to("hpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    images = torch.rand(2, 3, 32, 32).to("hpu")
    masks = (torch.rand(2, 1, 32, 32) > 0.5).float().to("hpu")
    shares = model(images).sigmoid()
    overlap = (shares * masks).sum((1, 2, 3))
    loss = 1 - (2 * overlap / (shares.sum((1, 2, 3)) + masks.sum((1, 2, 3)))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
