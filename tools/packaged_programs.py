"""Programs of published packages that `dry_runs.py` compares, at most three per model family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Packaged:
    """A program of a package, and how to run it.

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


def _clip(model: str) -> Packaged:
    """Return the training of a CLIP model with synthetic images and texts."""
    arguments = (
        *("--dataset-type", "synthetic", "--train-num-samples", "8", "--batch-size", "4"),
        *("--epochs", "1", "--workers", "0", "--model", model),
    )
    return Packaged("open_clip_train/main.py", arguments, cuda=True)


def _trl(script: str, model: str) -> Packaged:
    """Return a script of TRL with a tiny model and data set."""
    arguments = (
        *("--model_name_or_path", f"{{inputs}}/{model}", "--dataset_name", f"{{inputs}}/{script}"),
        *("--output_dir", "output", "--max_steps", "3", "--per_device_train_batch_size", "2"),
        *("--report_to", "none", "--save_strategy", "no"),
    )
    return Packaged(f"trl/scripts/{script}.py", arguments)


PROGRAMS = (
    Packaged("accelerate/test_utils/scripts/test_ops.py"),
    Packaged("accelerate/test_utils/scripts/test_sync.py"),
    _trl("sft", "llama"),
    Packaged("x_transformers/gpt_lejepa.py", device="hpu"),
    Packaged("x_transformers/next_latent_wrapper.py", device="hpu"),
)
