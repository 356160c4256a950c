"""Pipelines of diffusers on the device: the CPU's pictures from the same seed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_magic.errors import HPUError
from hpu_magic.simulator import activate

activate(announce=False)  # before a library asks PyTorch which accelerator there is
pytest.importorskip("diffusers")

import torch  # noqa: E402
from features import DIFFUSERS, proves  # noqa: E402
from tiny_diffusers import (  # noqa: E402
    of_the_prompt,
    pictures,
    quiet,
    stable_diffusion,
    unconditional,
)
from torch import nn  # noqa: E402


@pytest.fixture(autouse=True)
def _device(shell: Any) -> Iterator[None]:
    """Take back what the library sets for the process when a pipeline goes to the card."""
    from torch.backends import cuda

    reduced = cuda.fp16_bf16_reduction_math_sdp_allowed()
    yield
    cuda.allow_fp16_bf16_reduction_math_sdp(reduced)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[Path, torch.Tensor]:
    """A pipeline's folder, and what it draws on the CPU."""
    folder = tmp_path_factory.mktemp("ddpm")
    pipeline = unconditional()
    pipeline.save_pretrained(folder)
    return folder, pictures(pipeline)


def loaded(folder: Path, **options: Any) -> Any:
    from diffusers import DiffusionPipeline

    return quiet(DiffusionPipeline.from_pretrained(folder, **options))


def assert_equal(found: torch.Tensor, expected: torch.Tensor, within: float = 1e-4) -> None:
    assert found.shape == (1, 16, 16, 3)
    assert expected.std() > 0.05
    torch.testing.assert_close(found, expected, atol=within, rtol=0)


@proves(DIFFUSERS, "`StableDiffusionPipeline`: text to image, float32 and bf16")
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_a_prompt_is_drawn(dtype, within):
    pipeline = stable_diffusion().to("hpu", dtype)
    assert (str(pipeline.device), pipeline.vae.dtype) == ("hpu:0", dtype)
    assert_equal(of_the_prompt(pipeline), of_the_prompt(stable_diffusion()), within)


def trained(device: str) -> tuple[list[float], torch.Tensor]:
    """Return the losses of three steps, and what is drawn afterwards."""
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
    return losses, pictures(pipeline)


@proves(DIFFUSERS, "`DDPMPipeline`: training step of its UNet, image generation")
def test_a_unet_learns():
    losses, drawn = trained("hpu")
    expected_losses, expected = trained("cpu")
    assert expected_losses[0] - expected_losses[2] > 0.1
    assert losses == pytest.approx(expected_losses, abs=1e-4)
    assert_equal(drawn, expected, within=2e-3)


@proves(DIFFUSERS, "`%hpu_to` and `hpu_magic.to` of a pipeline")
def test_a_pipeline_is_moved_with_all_its_models(shell, run):
    shell.user_ns["draw"] = draw = stable_diffusion()
    models = draw.unet, draw.vae, draw.text_encoder
    expected = of_the_prompt(draw)
    size = sum(each.numel() * 4 for model in models for each in model.parameters())
    for device in ("hpu", "cpu"):
        report = run(f"moved = %hpu_to draw --device {device}\nmoved")
        assert report.error is None
        assert report.result.sizes["draw"] == pytest.approx(size, rel=0.02)
        assert shell.user_ns["draw"] is draw
        assert (draw.unet, draw.vae, draw.text_encoder) == models
        places = {each.device.type for model in models for each in model.parameters()}
        assert places == {draw.device.type} == {device}
        assert_equal(of_the_prompt(draw), expected)


@proves(DIFFUSERS, '`device_map="hpu"`, `"balanced"`')
@pytest.mark.parametrize("device_map", ["hpu", "balanced"])
def test_device_maps(saved, device_map):
    pipeline = loaded(saved[0], device_map=device_map)
    assert {str(each.device) for each in pipeline.unet.parameters()} == {"hpu:0"}
    assert_equal(pictures(pipeline), saved[1])


@proves(DIFFUSERS, "`%hpu_to` of a pipeline loaded with a device map")
def test_a_placed_pipeline_is_moved_once_its_map_is_reset(saved):
    import hpu_magic

    pipeline = loaded(saved[0], device_map="balanced")
    with pytest.raises(HPUError, match=r"of this DDPMPipeline were placed .*'unet': 0.*reset_"):
        hpu_magic.to(pipeline, device="cpu")
    assert pipeline.device.type == "hpu"
    pipeline.reset_device_map()
    assert hpu_magic.to(pipeline) is pipeline
    assert_equal(pictures(pipeline), saved[1])


@proves(DIFFUSERS, "`enable_model_cpu_offload`, `enable_sequential_cpu_offload`")
@pytest.mark.parametrize("how", ["model", "sequential"])
def test_models_wait_on_the_host(how):
    pipeline = stable_diffusion()
    expected = of_the_prompt(pipeline)
    getattr(pipeline, f"enable_{how}_cpu_offload")()
    assert pipeline._execution_device.type == "hpu"
    assert_equal(of_the_prompt(pipeline), expected)
    assert pipeline.device.type == ("cpu" if how == "model" else "meta")


@pytest.mark.skipif(
    "HPU_MAGIC_TEST_ALL_MODELS" not in os.environ, reason="make huggingface runs it"
)
@proves(DIFFUSERS, '`.to("hpu")` in a program with no other code for the card')
def test_a_program_that_names_nothing_but_the_device(script):
    program = f"""
        import os, sys, torch
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from tiny_diffusers import of_the_prompt, stable_diffusion
        pipeline = stable_diffusion()
        expected = of_the_prompt(pipeline)
        apart = of_the_prompt(pipeline.to("hpu")) - expected
        print(pipeline.device, bool(apart.abs().max() < 1e-4), os.environ["PT_HPU_GPU_MIGRATION"])
        print(torch.cuda.is_available())
    """
    assert script(program, simulated=True).split()[-4:] == ["hpu:0", "True", "1", "False"]
