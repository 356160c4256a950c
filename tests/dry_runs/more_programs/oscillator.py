"""A neural differential equation, solved by the Runge-Kutta method."""

import itertools

import torch
from torch import nn

torch.manual_seed(0)
field = nn.Sequential(nn.Linear(3, 32), nn.Softplus(), nn.Linear(32, 2)).to("hpu")
optimizer = torch.optim.Adam(field.parameters(), amsgrad=True)
times = torch.linspace(0, 1, 6).tolist()


def slope(time, state):
    return field(torch.cat([state, torch.full_like(state[:, :1], time)], dim=1))


for _ in range(3):
    state = torch.randn(10, 2, device="hpu")
    path = [state]
    for before, after in itertools.pairwise(times):
        step = after - before
        first = slope(before, state)
        second = slope(before + step / 2, state + step / 2 * first)
        third = slope(before + step / 2, state + step / 2 * second)
        fourth = slope(after, state + step * third)
        state = state + step / 6 * (first + 2 * second + 2 * third + fourth)
        path.append(state)
    loss = torch.stack(path).std(dim=0).log().abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
