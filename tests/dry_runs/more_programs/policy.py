"""Reinforcement learning of a policy from sampled actions."""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)).to("hpu")
optimizer = torch.optim.Adam(policy.parameters())
for _ in range(3):
    state, logs, rewards = torch.randn(4), [], []
    for _ in range(5):
        scores = policy(state.to("hpu")).log_softmax(0)
        action = torch.multinomial(scores.exp(), 1).cpu()
        logs.append(scores[0] + scores[1])
        state = torch.randn(4) + float(action)
        rewards.append(1.0)
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0).to("hpu")
    loss = -(torch.stack(logs) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
