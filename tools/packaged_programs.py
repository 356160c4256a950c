"""Programs of published packages that `dry_runs.py` compares, at most three per model family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Packaged:
    """A program that a package contains, and how to run it.

    Attributes
    ----------
    path : str
        Path of the file in the folder of packages.
    arguments : tuple of str
        Arguments; ``{inputs}`` is the folder that `program_inputs.py` has filled.
    device : str
        PyTorch's default device: ``"hpu"`` for programs that do not choose a device.
    cuda : bool
        Whether the program is written for CUDA.
    steps : int
        Number of optimizer steps to run; 0 runs the whole program.
    cards : int
        Number of ranks.
    """

    path: str
    arguments: tuple[str, ...] = ()
    device: str = "cpu"
    cuda: bool = False
    steps: int = 0
    cards: int = 1

    @property
    def name(self) -> str:
        """The path and the arguments."""
        return " ".join((self.path, *self.arguments))

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.removesuffix(".py").replace("/", ".")


def _trl(script: str, model: str, *more: str) -> Packaged:
    """Return a script of TRL with a tiny model and data set."""
    arguments = (
        *("--model_name_or_path", f"{{inputs}}/{model}", "--dataset_name", f"{{inputs}}/{script}"),
        *("--output_dir", "output", "--max_steps", "3", "--per_device_train_batch_size", "2"),
        *("--report_to", "none", "--save_strategy", "no", *more),
    )
    return Packaged(f"trl/scripts/{script}.py", arguments)


PROGRAMS = (
    Packaged("accelerate/test_utils/scripts/test_ops.py"),
    Packaged("accelerate/test_utils/scripts/test_sync.py"),
    Packaged("accelerate/test_utils/scripts/test_ddp_comm_hook.py", cards=2),
    Packaged("denoising_diffusion_pytorch/karras_unet_1d.py", device="hpu"),
    Packaged("labml_nn/adaptive_computation/ponder_net/experiment.py", cuda=True, steps=3),
    _trl("sft", "llama"),
    _trl("sft", "olmo2", "--gradient_accumulation_steps", "2"),
    _trl("kto", "mistral"),
    _trl("dpo", "qwen2"),
    _trl("reward", "gpt2"),
    Packaged("vit_pytorch/simple_vit_with_sparse_gating.py", device="hpu"),
    Packaged("vit_pytorch/na_vit_nested_tensor.py", device="hpu"),
    Packaged("vit_pytorch/vat.py", device="hpu"),
    Packaged("x_transformers/gpt_lejepa.py", device="hpu"),
    Packaged("x_transformers/next_latent_wrapper.py", device="hpu"),
)
