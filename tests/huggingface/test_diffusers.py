"""Pipelines of diffusers: images from the device and from the CPU are equal for the same seed."""

import os
from pathlib import Path

import pytest

from hpu_magic.errors import HPUError

pytest.importorskip("diffusers")

import torch
from features import DIFFUSERS, proves
from tiny_diffusers import draw_images, draw_prompt, quiet, stable_diffusion, unconditional
from torch import nn


@pytest.fixture(autouse=True)
def _reduction_setting(shell):
    """Restore the setting that the library changes when it moves a pipeline to the card."""
    from torch.backends import cuda

    reduced = cuda.fp16_bf16_reduction_math_sdp_allowed()
    yield
    cuda.allow_fp16_bf16_reduction_math_sdp(reduced)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A pipeline's folder, and its image on the CPU."""
    folder = tmp_path_factory.mktemp("ddpm")
    pipeline = unconditional()
    pipeline.save_pretrained(folder)
    return folder, draw_images(pipeline)


def loaded(folder, **options):
    from diffusers import DiffusionPipeline

    return quiet(DiffusionPipeline.from_pretrained(folder, **options))


def assert_equal(found, expected, tolerance=1e-4):
    assert found.shape == (1, 16, 16, 3)
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@proves(DIFFUSERS, "`StableDiffusionPipeline`: text to image, float32 and bf16")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_prompt_is_drawn_like_on_the_cpu(dtype, tolerance):
    pipeline = stable_diffusion().to("hpu", dtype)
    assert (str(pipeline.device), pipeline.vae.dtype) == ("hpu:0", dtype)
    assert_equal(draw_prompt(pipeline), draw_prompt(stable_diffusion()), tolerance)


def trained(device):
    """Return the losses of three steps, and an image afterwards."""
    pipeline = unconditional().to(device)
    generator = torch.Generator().manual_seed(2)
    clean, noise = torch.randn(2, 4, 3, 16, 16, generator=generator).to(device)
    moments = torch.tensor([10, 300, 600, 990], device=device)
    optimizer = torch.optim.AdamW(pipeline.unet.parameters(), 1e-2)
    losses = []
    for _ in range(3):
        noisy = pipeline.scheduler.add_noise(clean, noise, moments)
        loss = nn.functional.mse_loss(pipeline.unet(noisy, moments).sample, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, draw_images(pipeline)


@proves(DIFFUSERS, "`DDPMPipeline`: training step of its UNet, image generation")
def test_unet_trains_like_on_the_cpu():
    losses, drawn = trained("hpu")
    expected_losses, expected = trained("cpu")
    assert expected_losses[0] - expected_losses[2] > 0.1
    assert losses == pytest.approx(expected_losses, abs=1e-4)
    assert_equal(drawn, expected, tolerance=2e-3)


@proves(DIFFUSERS, "`%hpu_to` and `hpu_magic.to` of a pipeline")
def test_pipeline_is_moved_with_all_its_models(shell, run):
    shell.user_ns["draw"] = draw = stable_diffusion()
    models = draw.unet, draw.vae, draw.text_encoder
    expected = draw_prompt(draw)
    size = sum(each.numel() * 4 for model in models for each in model.parameters())
    for device in ("hpu", "cpu"):
        report = run(f"moved = %hpu_to draw --device {device}\nmoved")
        assert report.error is None
        assert report.result.sizes["draw"] == pytest.approx(size, rel=0.02)
        assert shell.user_ns["draw"] is draw
        assert (draw.unet, draw.vae, draw.text_encoder) == models
        places = {each.device.type for model in models for each in model.parameters()}
        assert places == {draw.device.type} == {device}
        assert_equal(draw_prompt(draw), expected)


@proves(DIFFUSERS, '`device_map="hpu"`, `"balanced"`')
@pytest.mark.parametrize("device_map", ["hpu", "balanced"])
def test_device_maps_place_the_model_on_the_card(saved, device_map):
    pipeline = loaded(saved[0], device_map=device_map)
    assert {str(each.device) for each in pipeline.unet.parameters()} == {"hpu:0"}
    assert_equal(draw_images(pipeline), saved[1])


@proves(DIFFUSERS, "`%hpu_to` of a pipeline loaded with a device map")
def test_pipeline_with_device_map_can_be_moved_after_a_reset(saved):
    import hpu_magic

    pipeline = loaded(saved[0], device_map="balanced")
    with pytest.raises(HPUError, match=r"of this DDPMPipeline were placed .*'unet': 0.*reset_"):
        hpu_magic.to(pipeline, device="cpu")
    assert pipeline.device.type == "hpu"
    pipeline.reset_device_map()
    assert hpu_magic.to(pipeline) is pipeline
    assert_equal(draw_images(pipeline), saved[1])


@proves(DIFFUSERS, "`enable_model_cpu_offload`, `enable_sequential_cpu_offload`")
@pytest.mark.parametrize("how", ["model", "sequential"])
def test_offloaded_models_stay_on_the_host(how):
    pipeline = stable_diffusion()
    expected = draw_prompt(pipeline)
    getattr(pipeline, f"enable_{how}_cpu_offload")()
    assert pipeline._execution_device.type == "hpu"
    assert_equal(draw_prompt(pipeline), expected)
    assert pipeline.device.type == ("cpu" if how == "model" else "meta")


@pytest.mark.skipif(
    "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ, reason="make huggingface runs it"
)
@proves(DIFFUSERS, '`.to("hpu")` in a program with no other code for the card')
def test_program_without_other_code_for_the_card_runs(script):
    program = f"""
        import os, sys, torch
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from tiny_diffusers import draw_prompt, stable_diffusion
        pipeline = stable_diffusion()
        expected = draw_prompt(pipeline)
        equal = torch.allclose(draw_prompt(pipeline.to("hpu")), expected, rtol=0, atol=1e-4)
        print(pipeline.device, equal, os.environ["PT_HPU_GPU_MIGRATION"])
        print(torch.cuda.is_available())
    """
    assert script(program, simulated=True).split()[-4:] == ["hpu:0", "True", "1", "False"]
