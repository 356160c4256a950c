"""Training of a diffusion model, and images that it generates."""

import torch
from diffusers import DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=16,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(8, 16),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).to("hpu")
scheduler = DDPMScheduler(num_train_timesteps=50)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    images = torch.randn(4, 1, 16, 16)
    noise, times = torch.randn_like(images), torch.randint(0, 50, (4,))
    noisy = scheduler.add_noise(images, noise, times).to("hpu")
    predicted = model(noisy, times.to("hpu")).sample
    loss = (predicted - noise.to("hpu")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
scheduler.set_timesteps(3)
drawn = torch.randn(1, 1, 16, 16).to("hpu")
with torch.no_grad():
    for time in scheduler.timesteps:
        drawn = scheduler.step(model(drawn, time.to("hpu")).sample, time, drawn).prev_sample
print(drawn.shape)
