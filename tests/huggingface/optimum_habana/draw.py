"""Images of a tiny Stable Diffusion: optimum-habana's pipeline, or diffusers' on the CPU."""

from functools import partial
from typing import Any

import torch
from reports import ON_CPU, count_replays, report
from tiny_diffusers import PROMPT, draw_images, stable_diffusion


def draw(graphs: bool = False, bf16: bool = False) -> dict[str, Any]:
    """Generate the image for the prompt twice, with classifier-free guidance."""
    replays = (lambda: 0) if ON_CPU else count_replays()
    if ON_CPU:
        pipeline = stable_diffusion()
    else:
        from optimum.habana import GaudiConfig
        from optimum.habana.diffusers import GaudiDDIMScheduler, GaudiStableDiffusionPipeline

        pipeline = stable_diffusion(
            GaudiStableDiffusionPipeline,
            GaudiDDIMScheduler,
            use_habana=True,
            use_hpu_graphs=graphs,
            gaudi_config=GaudiConfig(use_torch_autocast=bf16),
        )
    device = pipeline.unet.device
    embedded = {"prompt_embeds": PROMPT, "negative_prompt_embeds": torch.zeros_like(PROMPT)}
    prompt = {name: each.to(device) for name, each in embedded.items()}
    first, again = (draw_images(pipeline, guidance_scale=5.0, **prompt) for _ in range(2))
    return {
        "device": device.type,
        "pixels": first.flatten().tolist(),
        "again": torch.equal(first, again),
        "replays": replays(),
    }


if __name__ == "__main__":
    on_device = {"graphs": partial(draw, graphs=True), "bf16": partial(draw, bf16=True)}
    report({"plain": draw} if ON_CPU else {"plain": draw, **on_device})
