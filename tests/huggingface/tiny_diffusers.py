"""Pipelines of diffusers with images of 16 x 16 pixels and random weights."""

import torch
from tiny_models import VOCABULARY

_WIDTHS = {"block_out_channels": (4, 8), "norm_num_groups": 2}
PROMPT = torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(1))


def unet():
    """Return a UNet for images with three channels."""
    from diffusers import UNet2DModel

    blocks = {
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }
    return UNet2DModel(
        sample_size=16, layers_per_block=1, attention_head_dim=4, **blocks, **_WIDTHS
    )


def unconditional():
    """Return a pipeline that generates unconditional images."""
    from diffusers import DDPMPipeline, DDPMScheduler

    torch.manual_seed(0)
    return quiet(DDPMPipeline(unet(), DDPMScheduler()))


def stable_diffusion(kind=None, scheduler=None, **options):
    """Return a text-to-image pipeline for prompt embeddings with the shape of ``PROMPT``."""
    import diffusers
    from transformers import CLIPTextConfig, CLIPTextModel

    torch.manual_seed(0)
    attention = {"cross_attention_dim": PROMPT.shape[-1], "attention_head_dim": 2}
    blocks = {
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    }
    halves = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    words = CLIPTextConfig(
        vocab_size=VOCABULARY,
        hidden_size=PROMPT.shape[-1],
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=PROMPT.shape[1],
    )
    steps = {"steps_offset": 1, "clip_sample": False, "set_alpha_to_one": False}
    return quiet(
        (kind or diffusers.StableDiffusionPipeline)(
            unet=diffusers.UNet2DConditionModel(
                sample_size=8, layers_per_block=1, **attention, **blocks, **_WIDTHS
            ),
            vae=diffusers.AutoencoderKL(latent_channels=4, **halves, **_WIDTHS),
            text_encoder=CLIPTextModel(words),
            tokenizer=None,
            scheduler=(scheduler or diffusers.DDIMScheduler)(**steps),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
            **options,
        )
    )


def quiet(pipeline):
    """Disable the progress bar of a pipeline, and return the pipeline."""
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def draw_images(pipeline, **options) -> torch.Tensor:
    """Return an image from a fixed seed after three steps, with shape (1, 16, 16, 3)."""
    seed = torch.Generator().manual_seed(0)
    drawn = pipeline(generator=seed, num_inference_steps=3, output_type="np", **options)
    return torch.tensor(drawn.images)


def draw_prompt(pipeline) -> torch.Tensor:
    """Return the image for the prompt, with classifier-free guidance."""
    place = {"device": pipeline._execution_device, "dtype": pipeline.unet.dtype}
    prompt = {
        "prompt_embeds": PROMPT.to(**place),
        "negative_prompt_embeds": torch.zeros_like(PROMPT).to(**place),
    }
    return draw_images(pipeline, guidance_scale=5.0, **prompt)
