"""A convolutional speech recognizer with a spectrogram from the host."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv1d(33, 48, 7, padding=3), nn.BatchNorm1d(48), nn.Hardtanh(), nn.Conv1d(48, 12, 1)
).to("hpu")
optimizer = torch.optim.RAdam(model.parameters())
window = torch.hann_window(64)
for _ in range(3):
    sound = torch.randn(4, 3200)
    spectrum = torch.stft(sound, 64, window=window, return_complex=True).abs().log1p()
    scores = model(spectrum.to("hpu")).log_softmax(1)
    letters = torch.randint(1, 12, (4, 201)).to("hpu")
    loss = nn.functional.nll_loss(scores, letters, ignore_index=3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
